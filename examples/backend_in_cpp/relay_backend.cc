// A whole backend on cotune's SDK for C++: all_reduce of f32 by sum on host memory. Every rank puts
// its elements into the job's store, chunk by chunk, and adds up those of all in the order of the
// ranks. Slow, and nothing but the SDK.
#include <cotune/cotune_backend_v1.h>
#include <cotune/sdk/backend_shell.h>
#include <cotune/sdk/problem.h>
#include <cotune/sdk/rendezvous.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

namespace sdk = cotune::sdk;
using sdk::Fail;
using sdk::Failure;
using sdk::Result;

constexpr char kName[] = "relay";

// A wait looks at the abort and at the other ranks this often.
constexpr int64_t kSliceNs = 5'000'000;

// The choices are the sizes of a chunk; the store takes 64 KiB at most.
struct ChunkSize {
  const char* choice;
  uint64_t elements;
};
constexpr ChunkSize kChunkSizes[] = {{"chunks?kib=16", 4096}, {"chunks?kib=64", 16384}};
constexpr int kDefaultSize = 1;

class Group;

// The operation of one plan, of which the buffers are made by prepare.
class Plan {
 public:
  Plan(Group& group, const sdk::Problem& problem, uint64_t chunk_elements)
      : group_(group),
        problem_(problem),
        chunk_elements_(chunk_elements),
        own_(chunk_elements),
        peers_(chunk_elements),
        sum_(chunk_elements) {}

  Result<void> Launch(const cotune_launch_t& launch);
  Result<bool> Progress(int64_t until_ns);

 private:
  uint64_t ChunkCount() const { return std::min(chunk_elements_, problem_.count - begin_); }
  Result<void> SendChunk();
  // False: the peer's chunk is not there by then.
  Result<bool> AddChunkOf(int peer, int64_t until_ns);

  Group& group_;
  const sdk::Problem problem_;
  const uint64_t chunk_elements_;
  std::vector<float> own_;    // this rank's chunk: the receive buffer may be the send buffer
  std::vector<float> peers_;  // a peer's chunk
  std::vector<float> sum_;
  const float* send_ = nullptr;
  float* recv_ = nullptr;
  int64_t deadline_ns_ = 0;
  uint64_t call_ = 0;
  uint64_t begin_ = 0;  // of the chunk, in elements
  int next_ = -1;       // the rank whose chunk is added next; -1: this rank's is still to be sent
  bool is_running_ = false;
};

class Group {
 public:
  using Plan = ::Plan;

  Group(const cotune_host_t& host, const cotune_group_params_t& params)
      : host_(host), meeting_(host, params, kName) {}

  // Collective. What the others put into the store is there until every rank has joined.
  Result<void> Meet(int64_t deadline_ns) {
    COTUNE_RETURN_IF_ERROR(meeting_.Meet("join", Result<char>('\1'), deadline_ns));
    return {};
  }

  int rank() const { return meeting_.rank(); }
  int world_size() const { return meeting_.world_size(); }
  int64_t NowNs() const { return host_.now_ns(host_.context); }

  std::optional<Failure> Health() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return failure_;
  }
  // Keeps the first failure of the group and passes it on.
  tl::unexpected<Failure> Break(Failure failure) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_) failure_ = std::move(failure);
    return tl::unexpected<Failure>(*failure_);
  }
  void Abort() {
    if (is_aborted_.exchange(true)) return;
    const Failure failure{COTUNE_ABORTED, 0, -1, "the group was aborted"};
    static_cast<void>(Break(failure));
    meeting_.GiveUp(failure);
  }

  Result<std::unique_ptr<Plan>> Prepare(const sdk::Problem& problem, std::string_view choice,
                                        int64_t /*deadline_ns*/) {
    if (auto failure = Health()) return tl::unexpected<Failure>(*failure);
    for (const ChunkSize& size : kChunkSizes) {
      if (choice == size.choice) return std::make_unique<Plan>(*this, problem, size.elements);
    }
    return Fail(COTUNE_UNSUPPORTED, "there is no choice " + std::string(choice));
  }

  uint64_t BeginCall() { return ++calls_; }

  Result<void> Put(uint64_t call, uint64_t begin, int to, const std::vector<float>& chunk,
                   uint64_t count) {
    char key[256];
    const cotune_status_t put = host_.store_put(host_.context, KeyOf(key, call, begin, rank(), to),
                                                chunk.data(), count * sizeof(float));
    if (put == COTUNE_OK) return {};
    return Break({put, 0, -1, "the job's store does not take a chunk"});
  }
  // False: it is not there by then. Every chunk has one reader, which deletes it.
  Result<bool> Take(uint64_t call, uint64_t begin, int from, std::vector<float>& chunk,
                    uint64_t count, int64_t until_ns) {
    char key[256];
    KeyOf(key, call, begin, from, rank());
    uint64_t size = 0;
    const cotune_status_t got =
        host_.store_get(host_.context, key, chunk.data(), count * sizeof(float), &size, until_ns);
    if (got == COTUNE_DEADLINE_EXCEEDED) {
      // The one that is waited for may have given up.
      if (auto why = meeting_.WhoGaveUp()) return Break(*why);
      return false;
    }
    if (got != COTUNE_OK || size != count * sizeof(float)) {
      return Break({got == COTUNE_OK ? COTUNE_INTERNAL : got, 0, from,
                    "no chunk can be read of " + meeting_.NameOf(from)});
    }
    host_.store_delete(host_.context, key);
    return true;
  }
  tl::unexpected<Failure> Late(int peer) {
    return Break({COTUNE_PEER_FAILED, 0, peer,
                  meeting_.NameOf(peer) + " had not sent its elements at the deadline"});
  }

 private:
  // In a buffer of the caller: launch and progress allocate nothing.
  const char* KeyOf(char (&key)[256], uint64_t call, uint64_t begin, int from, int to) const {
    std::snprintf(key, sizeof(key), "%s/%s/%llu/%llu/%d-%d", meeting_.group_name().c_str(), kName,
                  static_cast<unsigned long long>(call), static_cast<unsigned long long>(begin),
                  from, to);
    return key;
  }

  const cotune_host_t& host_;
  const sdk::Rendezvous meeting_;
  uint64_t calls_ = 0;  // equal on all ranks
  std::atomic<bool> is_aborted_{false};
  std::mutex mutex_;  // guards what follows
  std::optional<Failure> failure_;
};

Result<void> Plan::Launch(const cotune_launch_t& launch) {
  if (auto failure = group_.Health()) return tl::unexpected<Failure>(*failure);
  auto fits = sdk::CheckBuffers(problem_, group_.rank(), launch.send, launch.recv);
  if (!fits) return fits;
  send_ = static_cast<const float*>(launch.send);
  recv_ = static_cast<float*>(launch.recv);
  deadline_ns_ = launch.deadline_ns;
  call_ = group_.BeginCall();
  begin_ = 0;
  next_ = -1;
  is_running_ = true;
  return {};
}

Result<bool> Plan::Progress(int64_t until_ns) {
  if (!is_running_) return Fail(COTUNE_INVALID_ARGUMENT, "nothing was launched");
  while (begin_ < problem_.count) {
    if (auto failure = group_.Health()) return tl::unexpected<Failure>(*failure);
    if (next_ < 0) {
      if (auto sent = SendChunk(); !sent) return tl::unexpected<Failure>(sent.error());
      next_ = 0;
    }
    for (; next_ < group_.world_size(); ++next_) {
      const auto added = AddChunkOf(next_, until_ns);
      if (!added || !*added) return added;
    }
    std::memcpy(recv_ + begin_, sum_.data(), ChunkCount() * sizeof(float));
    begin_ += ChunkCount();
    next_ = -1;
  }
  is_running_ = false;
  return true;
}

Result<void> Plan::SendChunk() {
  std::memcpy(own_.data(), send_ + begin_, ChunkCount() * sizeof(float));
  for (int peer = 0; peer < group_.world_size(); ++peer) {
    if (peer == group_.rank()) continue;
    if (auto put = group_.Put(call_, begin_, peer, own_, ChunkCount()); !put) return put;
  }
  return {};
}

Result<bool> Plan::AddChunkOf(int peer, int64_t until_ns) {
  while (peer != group_.rank()) {
    const int64_t now_ns = group_.NowNs();
    const int64_t end_ns = std::min({until_ns, deadline_ns_, now_ns + kSliceNs});
    const auto taken = group_.Take(call_, begin_, peer, peers_, ChunkCount(), end_ns);
    if (!taken) return taken;
    if (*taken) break;
    if (auto failure = group_.Health()) return tl::unexpected<Failure>(*failure);
    if (group_.NowNs() >= deadline_ns_) return group_.Late(peer);
    if (group_.NowNs() >= until_ns) return false;
  }
  const std::vector<float>& chunk = peer == group_.rank() ? own_ : peers_;
  for (uint64_t i = 0; i < ChunkCount(); ++i) sum_[i] = peer == 0 ? chunk[i] : sum_[i] + chunk[i];
  return true;
}

class Backend {
 public:
  using Group = ::Group;
  using Problem = sdk::Problem;

  static constexpr const char* kName = ::kName;
  static constexpr char kVersion[] = "1.0.0";
  static constexpr uint32_t kMemoryKind = COTUNE_MEMORY_HOST;
  static constexpr int kRanksMax = 16;

  explicit Backend(const cotune_host_t& host) : host_(host) {}
  static Result<std::unique_ptr<Backend>> Create(const cotune_host_t& host, int32_t /*device*/) {
    return std::make_unique<Backend>(host);
  }

  int32_t device() const { return -1; }

  static Result<Problem> CheckProblem(const cotune_problem_t& abi) {
    auto problem = sdk::CheckProblem(abi, {.memory_kind = kMemoryKind, .ranks_max = kRanksMax});
    const bool is_ours = problem && problem->collective == sdk::Collective::kAllReduce &&
                         problem->reduction == sdk::Reduction::kSum &&
                         problem->type == sdk::ElementType::kF32;
    if (problem && !is_ours) return Fail(COTUNE_UNSUPPORTED, "only all_reduce of f32 by sum");
    return problem;
  }

  Result<std::vector<cotune_choice_t>> ListChoices(const Problem& /*problem*/) const {
    std::vector<cotune_choice_t> entries;
    for (const ChunkSize& size : kChunkSizes) {
      uint32_t flags = COTUNE_CHOICE_REPRODUCIBLE;
      if (&size == &kChunkSizes[kDefaultSize]) flags |= COTUNE_CHOICE_DEFAULT;
      entries.push_back(sdk::ChoiceEntry(size.choice, "", -1, flags, sdk::kRankOrderNumerics));
      entries.back().workspace_bytes = 3 * size.elements * sizeof(float);
    }
    return entries;
  }

  Result<std::unique_ptr<Group>> Join(const cotune_group_params_t& params) {
    auto group = std::make_unique<Group>(host_, params);
    if (auto met = group->Meet(params.deadline_ns); !met) {
      return tl::unexpected<Failure>(met.error());
    }
    return group;
  }

 private:
  const cotune_host_t& host_;
};

}  // namespace

extern "C" COTUNE_EXPORT const cotune_backend_api_t* cotune_backend_query_v1(
    uint32_t /*host_abi_minor*/, cotune_error_t* /*refusal*/) {
  return sdk::BackendShell<Backend>::Table();
}
