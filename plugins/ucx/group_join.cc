// How a group comes to be: the ranks exchange addresses in the store, connect, and nobody goes on
// before each has heard from all others.
#include <fmt/format.h>
#include <sched.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "plugins/ucx/group.h"
#include "plugins/ucx/tag.h"

namespace cotune::ucx {
namespace {

constexpr char kPhase[] = "addresses";
constexpr int64_t kMillisecondNs = 1'000'000;
// Between two looks whether a rank has given up.
constexpr int64_t kLookNs = 20 * kMillisecondNs;
constexpr int64_t kFarewellNs = 200 * kMillisecondNs;

using ProcessorMask = std::array<uint64_t, 16>;

// What a rank offers, in front of its address.
struct OfferHeader {
  uint32_t version_major = 0;
  uint32_t version_minor = 0;
  uint32_t version_release = 0;
  int32_t pid = 0;
  uint64_t start_ticks = 0;
  uint64_t processes = 0;  // digest of the host and the space of process numbers; 0: not known
  uint64_t configuration = 0;
  ProcessorMask processors{};  // that the rank may use
  uint64_t random = 0;         // another one in every group of every job
};

// Equal for processes that see each other's numbers.
uint64_t ProcessSpace() {
  std::string text;
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  struct stat space {};
  if (!std::getline(boot, text) || stat("/proc/self/ns/pid", &space) != 0) return 0;
  text += fmt::format("/{}", space.st_ino);
  return XXH64(text.data(), text.size(), 0);
}

uint64_t RandomWord() {
  uint64_t word = 0;
  // So few bytes come whole, or not at all in a process that may not ask.
  if (getrandom(&word, sizeof(word), 0) != sizeof(word)) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    word = XXH64(&now, sizeof(now), static_cast<uint64_t>(getpid()));
  }
  return word;
}

// Bit c is set where this process may use processor c.
ProcessorMask UsableProcessors() {
  ProcessorMask mask{};
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof(usable), &usable) != 0) return mask;
  for (size_t c = 0; c < mask.size() * 64; ++c) {
    if (CPU_ISSET(c, &usable)) mask[c / 64] |= uint64_t{1} << (c % 64);
  }
  return mask;
}

// Files that this process has open; `allowed` where not even one more can be opened; -1: not known.
int64_t OpenFiles(int64_t allowed) {
  namespace fs = std::filesystem;
  std::error_code error;
  int64_t files = 0;
  for (fs::directory_iterator file("/proc/self/fd", error), end; !error && file != end;
       file.increment(error)) {
    ++files;
  }
  if (error == std::errc::too_many_files_open) return allowed;
  return error ? -1 : files - 1;  // the folder itself is one
}

// Refuses a group for which the process may run out of files: UCX would abort the process.
Result<void> CheckOpenFiles(int world_size) {
  // UCX 1.13 and 1.22 open up to 18 files for a worker and 3 for a peer (TCP over one device). The
  // rest is for more devices, and for the other parts of the process.
  constexpr int64_t kFilesOfWorker = 32;
  constexpr int64_t kFilesOfPeer = 4;
  const int64_t needed = kFilesOfWorker + kFilesOfPeer * world_size;
  struct rlimit limit {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > INT32_MAX) return {};
  const auto allowed = static_cast<int64_t>(limit.rlim_cur);
  const int64_t open = OpenFiles(allowed);
  if (open < 0 || allowed - open >= needed) return {};
  return Fail(
      COTUNE_OUT_OF_RESOURCES,
      fmt::format("the process may open {} files and has {} open, but UCX may need {} more "
                  "for a group of {} ranks; raise the limit, for example by `ulimit -n {}`",
                  allowed, open, needed, world_size, std::max<int64_t>(1024, open + 2 * needed)));
}

bool HasOneOf(const std::string& transports, std::span<const std::string_view> names) {
  return std::any_of(names.begin(), names.end(), [&](std::string_view name) {
    return transports.find(name) != std::string::npos;
  });
}

// Whether one of UCX's transports, as Worker::TransportsTo names them, is a queue in shared memory.
bool SharesMemory(const std::string& transports) {
  constexpr std::string_view kQueues[] = {"posix", "sysv", "xpmem"};
  return HasOneOf(transports, kQueues);
}

// Returns true if a message by these transports may be complete before it has left. In a queue in
// shared memory it lies where the receiver takes it, and a device with reliable connections goes on
// alone.
bool NeedsPollsToLeave(const std::string& transports) {
  constexpr std::string_view kReliable[] = {"rc_", "dc_"};
  return !SharesMemory(transports) && !HasOneOf(transports, kReliable);
}

OfferHeader HeaderOf(std::string_view offer) {
  OfferHeader header;
  std::memcpy(&header, offer.data(), sizeof(header));
  return header;
}

}  // namespace

Result<std::unique_ptr<Group>> Group::Join(const cotune_host_t& host,
                                           const cotune_group_params_t& params,
                                           std::shared_ptr<const Context> context) {
  std::unique_ptr<Group> group(new Group(host, params, std::move(context)));
  COTUNE_RETURN_IF_ERROR(group->Connect(params.deadline_ns));
  group->is_joined_ = true;
  group->LogConnections();
  return group;
}

Result<void> Group::Connect(int64_t deadline_ns) {
  const auto lock = UseWorker();
  COTUNE_TRY(auto offers, ExchangeOffers(deadline_ns));
  auto connected = worker_->Connect(rank_, offers);
  if (connected) connected = CheckConnections(deadline_ns);
  if (!connected) {
    // A rank that has given up, because of another one, cannot be reached any more.
    if (auto refusal = meeting_.WhoGaveUp(); refusal && !HasFailed()) {
      return tl::unexpected(*refusal);
    }
    // Nor can one that has died; which of the two it is, its process says.
    const int peer = connected.error().failed_rank;
    if (!HasFailed() && peer >= 0 && IsProcessGone(peer)) {
      connected = Fail(
          COTUNE_PEER_FAILED,
          fmt::format("{} died while the group was made; see its output", NameOf(peer)), 0, peer);
    }
    meeting_.GiveUp(connected.error());
    return connected;
  }
  // Who has said something has read all addresses.
  meeting_.Delete(kPhase);
  return {};
}

Result<std::vector<std::string>> Group::ExchangeOffers(int64_t deadline_ns) {
  Result<std::string> own;
  if (auto enough = CheckOpenFiles(world_size_); !enough) {
    own = Propagate(enough);
  } else if (auto worker = Worker::Create(context_); !worker) {
    own = Propagate(worker);
  } else {
    worker_ = std::move(*worker);
    own = worker_->Address();
  }
  OfferHeader header;
  const UcxVersion& version = context_->ucx().version();
  const sdk::ProcessIdentity self = sdk::OwnIdentity();
  header = {version.major,
            version.minor,
            version.release,
            self.pid,
            self.start_ticks,
            ProcessSpace(),
            context_->configuration_digest(),
            UsableProcessors(),
            RandomWord()};
  if (own) own->insert(0, reinterpret_cast<const char*>(&header), sizeof(header));
  std::bitset<1024> processors;  // that ranks of this host may use
  int here = 0;                  // such ranks
  digest_ = XXH64(meeting_.group_name().data(), meeting_.group_name().size(), 0);
  auto offers = meeting_.ExchangeTexts(kPhase, own, deadline_ns);
  if (!offers) return offers;
  for (int r = 0; r < world_size_; ++r) {
    std::string& offer = (*offers)[static_cast<size_t>(r)];
    if (offer.size() <= sizeof(OfferHeader)) {
      return Fail(
          COTUNE_INVALID_ARGUMENT,
          fmt::format("{} announced no address; do all ranks run the same ucx plugin?", NameOf(r)),
          0, r);
    }
    const OfferHeader other = HeaderOf(offer);
    if (std::memcmp(&other, &header, offsetof(OfferHeader, pid)) != 0) {
      return Fail(
          COTUNE_UNSUPPORTED,
          fmt::format("{} has UCX {}.{}.{}, and {} has {}; install one version on all hosts",
                      NameOf(r), other.version_major, other.version_minor, other.version_release,
                      NameOf(rank_), version.Text()),
          0, r);
    }
    if (other.configuration != header.configuration) {
      return Fail(COTUNE_UNSUPPORTED,
                  fmt::format("UCX is configured in another way on {} than on {}; give all ranks "
                              "the same UCX_ variables, or the settings ucx.tls and so on",
                              NameOf(r), NameOf(rank_)),
                  0, r);
    }
    digest_ = XXH64(&other.random, sizeof(other.random), digest_);
    PeerState& peer = peers_[static_cast<size_t>(r)];
    peer.process = {other.pid, other.start_ticks};
    peer.shares_processes = other.processes != 0 && other.processes == header.processes;
    if (peer.shares_processes) {
      ++here;
      for (size_t w = 0; w < other.processors.size(); ++w) {
        processors |= std::bitset<1024>(other.processors[w]) << (w * 64);
      }
    }
    offer.erase(0, sizeof(OfferHeader));
  }
  is_crowded_ = here > static_cast<int>(processors.count());
  return offers;
}

Result<void> Group::CheckConnections(int64_t deadline_ns) {
  control_receives_ = std::make_unique<RequestPool>(*context_, kControlReceives);
  control_received_.resize(kControlReceives);
  control_sends_ =
      std::make_unique<RequestPool>(*context_, kControlSends * static_cast<size_t>(world_size_));
  control_sent_.resize(kControlSends * static_cast<size_t>(world_size_));
  control_open_ = 0;
  for (size_t i = 0; i < kControlReceives; ++i) PostControlReceive(i);
  for (const auto kind : {ControlMessage::Kind::kHello, ControlMessage::Kind::kReady}) {
    SendToAll(StateMessage(kind));
    const bool is_hello = kind == ControlMessage::Kind::kHello;
    auto heard = AwaitAll(is_hello ? &PeerState::said_hello : &PeerState::is_ready, deadline_ns);
    if (!heard) return heard;
  }
  FlushControl(std::max<int64_t>(deadline_ns - NowNs(), 0));
  if (is_crowded_) ChoosePollsPerLook();
  for (int r = 0; r < world_size_; ++r) {
    const std::string transports = worker_->TransportsTo(r);
    peers_[static_cast<size_t>(r)].shares_memory = SharesMemory(transports);
    peers_[static_cast<size_t>(r)].needs_polls = r != rank_ && NeedsPollsToLeave(transports);
  }
  return {};
}

// The rank that is waited for may need this processor. A poll takes 20 ns where memory is shared,
// and a system call where it is not.
void Group::ChoosePollsPerLook() {
  constexpr int kPolls = 16;
  constexpr int64_t kSpinNs = 1000;
  int64_t shortest_ns = INT64_MAX;
  for (int batch = 0; batch < 4; ++batch) {
    const int64_t begin_ns = NowNs();
    for (int i = 0; i < kPolls; ++i) Poll();
    shortest_ns = std::min(shortest_ns, NowNs() - begin_ns);
  }
  const int64_t polls = kPolls * kSpinNs / std::max<int64_t>(shortest_ns, 1);
  polls_per_look_ = static_cast<int>(std::clamp<int64_t>(polls, 1, kPollsPerLookMax));
}

Result<void> Group::AwaitAll(bool PeerState::*said, int64_t deadline_ns) {
  int64_t last_look_ns = NowNs();
  int idle = 0;
  while (true) {
    int missing = -1;
    for (int r = 0; r < world_size_ && missing < 0; ++r) {
      if (r != rank_ && !(peers_[static_cast<size_t>(r)].*said)) missing = r;
    }
    if (missing < 0) return {};
    if (!Poll() && ++idle % 16 == 0) sched_yield();
    if (auto failure = Health()) return tl::unexpected(*failure);
    const int64_t now_ns = NowNs();
    if (now_ns - last_look_ns < kLookNs && now_ns < deadline_ns) continue;
    last_look_ns = now_ns;
    if (auto refusal = meeting_.WhoGaveUp()) return tl::unexpected(*refusal);
    for (int r = 0; r < world_size_; ++r) {
      if (r == rank_ || (peers_[static_cast<size_t>(r)].*said)) continue;
      const bool is_lost = worker_->PeerStatus(r) != UCS_OK;
      if (IsProcessGone(r)) {
        Declare({.kind = GroupFailure::Kind::kDied, .culprit = r});
      } else if (is_lost) {
        Declare({.kind = GroupFailure::Kind::kLost,
                 .culprit = r,
                 .native_code = worker_->PeerStatus(r)});
      } else if (now_ns >= deadline_ns) {
        Declare({.kind = GroupFailure::Kind::kLate, .culprit = r, .late = uint64_t{1} << r});
      } else {
        continue;
      }
      return tl::unexpected(*Health());
    }
  }
}

std::string Group::TransportsTo(int peer) {
  const auto lock = UseWorker();
  return worker_->TransportsTo(peer);
}

// One line for each way that UCX took.
void Group::LogConnections() {
  if (host_.log == nullptr || world_size_ == 1) return;
  std::map<std::string, std::string> ranks_of;
  for (int r = 0; r < world_size_; ++r) {
    if (r == rank_) continue;
    std::string& ranks = ranks_of[TransportsTo(r)];
    ranks += fmt::format("{}{}", ranks.empty() ? "" : ", ", job_ranks_[static_cast<size_t>(r)]);
  }
  for (const auto& [transports, ranks] : ranks_of) {
    const std::string text = fmt::format("UCX {}: {} to job ranks {}",
                                         context_->ucx().version().Text(), transports, ranks);
    host_.log(host_.context, 0, text.c_str());
  }
}

Group::~Group() {
  if (worker_ == nullptr) return;
  const auto lock = UseWorker();
  // All know why a group has failed.
  if (is_joined_ && world_size_ > 1 && !HasFailed()) {
    SendToAll(StateMessage(ControlMessage::Kind::kLeft));
    FlushControl(kFarewellNs);
    worker_->AwaitTaken(kFarewellNs);
  }
  if (control_receives_ != nullptr) {
    for (Request& request : control_receives_->all()) worker_->Cancel(request);
  }
  worker_->Close();
  if (!worker_->is_abandoned()) return;
  WarnOfAbandonedWorker();
  // UCX has addresses in all of these.
  using Messages = std::vector<ControlMessage>;
  Keep(std::move(control_receives_));
  Keep(std::make_shared<Messages>(std::move(control_received_)));
  Keep(std::move(control_sends_));
  Keep(std::make_shared<Messages>(std::move(control_sent_)));
}

void Group::WarnOfAbandonedWorker() {
  if (has_warned_ || host_.log == nullptr) return;
  has_warned_ = true;
  constexpr int32_t kWarning = 2;
  const std::string text = fmt::format(
      "UCX cannot stop a message or close a connection of group '{}' in time; UCX is not run any "
      "more for this group, so that it writes to no buffer, and the group's connections and their "
      "memory stay with the process until it ends",
      meeting_.group_name());
  host_.log(host_.context, kWarning, text.c_str());
}

}  // namespace cotune::ucx
