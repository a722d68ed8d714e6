// Memory of calls that were captured, groups that some ranks have left, and buffers of calls that
// failed.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/gpu/api_rank.h"

namespace cotune::gputest {
namespace {

constexpr std::byte kCanary{0x5C};
constexpr int64_t kPatienceNs = 20'000'000'000;

uint64_t SendBytes(const Problem& problem) {
  return problem.send_elements() * SizeBytes(problem.cls.dtype);
}
uint64_t RecvBytes(const Problem& problem) {
  return problem.recv_elements() * SizeBytes(problem.cls.dtype);
}

// A call with buffers of its own.
struct Buffers {
  Problem problem;
  void* send = nullptr;
  void* recv = nullptr;
};

using Allocate = std::function<Result<void*>(uint64_t bytes)>;

Result<Buffers> AllocateBuffers(const Problem& problem, const Allocate& allocate) {
  COTUNE_TRY(void* send, allocate(SendBytes(problem)));
  COTUNE_TRY(void* recv, allocate(RecvBytes(problem)));
  return Buffers{problem, send, recv};
}

Allocate Registered(cotune_group* group) {
  return [group](uint64_t bytes) -> Result<void*> {
    void* data = nullptr;
    COTUNE_RETURN_IF_ERROR(
        StatusOf(group, cotune_memory_allocate(group, bytes, &data), "memory_allocate"));
    return data;
  };
}

Allocate Plain(ApiRank& rank) {
  return [&rank](uint64_t bytes) { return rank.memory().Allocate(bytes); };
}

// Memory of the caller's own, which stays when the group goes.
Allocate OwnRegistered(ApiRank& rank, cotune_group* group) {
  return [&rank, group](uint64_t bytes) -> Result<void*> {
    COTUNE_TRY(void* data, rank.memory().AllocateMapped(bytes));
    COTUNE_RETURN_IF_ERROR(
        StatusOf(group, cotune_memory_register(group, data, bytes), "memory_register"));
    return data;
  };
}

Status Fill(ApiRank& rank, int rank_in_group, const Buffers& call, uint32_t salt) {
  const std::vector<std::byte> poison(RecvBytes(call.problem), std::byte{0xA5});
  COTUNE_RETURN_IF_ERROR(rank.memory().Write(call.recv, poison));
  return rank.memory().Write(call.send,
                             SendData(call.problem, rank_in_group, Pattern::kExact, salt));
}

Status Check(ApiRank& rank, int rank_in_group, const Buffers& call, uint32_t salt,
             const std::string& what) {
  COTUNE_TRY(const auto answer, rank.memory().Read(call.recv, RecvBytes(call.problem)));
  rank.Expect(call.problem, what, RightAnswer(call.problem, rank_in_group, Pattern::kExact, salt),
              answer);
  return {};
}

Status Call(cotune_group* group, const Buffers& call) {
  return ApiRank::Call(group, call.problem, call.send, call.recv);
}

// Memory that nobody may write into.
class Canaries {
 public:
  explicit Canaries(ApiRank& rank) : rank_(rank) {}

  Status Add(const std::string& name, void* data, uint64_t bytes) {
    COTUNE_RETURN_IF_ERROR(rank_.memory().Write(data, std::vector<std::byte>(bytes, kCanary)));
    each_.push_back({name, data, bytes});
    return {};
  }
  // Counts a buffer as right or wrong.
  Status Check(const std::string& when) {
    for (const Each& each : each_) {
      COTUNE_TRY(const auto found, rank_.memory().Read(each.data, each.bytes));
      const auto changed = std::count_if(found.begin(), found.end(),
                                         [](std::byte value) { return value != kCanary; });
      rank_.Note(each.name + " " + when,
                 changed == 0 ? "" : std::to_string(changed) + " bytes were overwritten");
    }
    return {};
  }
  // The same without counting, for as long as nobody has written. False: somebody has.
  Result<bool> AreWhole() {
    for (const Each& each : each_) {
      COTUNE_TRY(const auto found, rank_.memory().Read(each.data, each.bytes));
      if (std::any_of(found.begin(), found.end(),
                      [](std::byte value) { return value != kCanary; })) {
        return false;
      }
    }
    return true;
  }

 private:
  struct Each {
    std::string name;
    void* data;
    uint64_t bytes;
  };
  ApiRank& rank_;
  std::vector<Each> each_;
};

// Waits until the GPU has so many free bytes, which the graph held until it was destroyed.
Status AwaitFreeBytes(ApiRank& rank, uint64_t bytes) {
  const int64_t until_ns = NowNs() + kPatienceNs;
  while (true) {
    // Gives back what the last graph has let go of.
    COTUNE_RETURN_IF_ERROR(
        StatusOf(rank.group(), cotune_memory_free(rank.group(), nullptr), "memory_free"));
    COTUNE_TRY(const uint64_t free_bytes, rank.memory().FreeBytes());
    if (free_bytes >= bytes) return {};
    if (NowNs() > until_ns) {
      rank.Note("after the graph", "its memory was not given back");
      return {};
    }
    std::this_thread::yield();
  }
}

std::vector<int32_t> AllRanks(int size) {
  std::vector<int32_t> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

Status RunGraphMemory(ApiRank& rank, const Flags& flags) {
  cotune_group* group = rank.group();
  const Problem problem = rank.CaseProblem(group);
  COTUNE_TRY(const Buffers call, AllocateBuffers(problem, Registered(group)));
  COTUNE_RETURN_IF_ERROR(Fill(rank, rank.rank(), call, 1));
  COTUNE_RETURN_IF_ERROR(Call(group, call));
  COTUNE_RETURN_IF_ERROR(rank.Await(group, rank.stream()));
  COTUNE_RETURN_IF_ERROR(Check(rank, rank.rank(), call, 1, "before the capture"));
  COTUNE_TRY(CallMemory::Replay replay,
             rank.memory().Capture(rank.stream(), [&] { return Call(group, call); }));
  COTUNE_RETURN_IF_ERROR(Fill(rank, rank.rank(), call, 2));

  // The caller gives the memory back, and asks for as much again.
  for (void* data : {call.send, call.recv}) {
    COTUNE_RETURN_IF_ERROR(StatusOf(group, cotune_memory_free(group, data), "memory_free"));
  }
  Canaries canaries(rank);
  COTUNE_TRY(const Buffers registered, AllocateBuffers(problem, Registered(group)));
  COTUNE_TRY(const Buffers plain, AllocateBuffers(problem, Plain(rank)));
  for (const Buffers& each : {registered, plain}) {
    COTUNE_RETURN_IF_ERROR(canaries.Add("a send buffer", each.send, SendBytes(problem)));
    COTUNE_RETURN_IF_ERROR(canaries.Add("a receive buffer", each.recv, RecvBytes(problem)));
  }
  for (int i = 0; i < 3; ++i) {
    COTUNE_RETURN_IF_ERROR(replay());
    COTUNE_RETURN_IF_ERROR(rank.Await(group, rank.stream()));
    COTUNE_RETURN_IF_ERROR(canaries.Check("after a replay with freed memory"));
  }
  COTUNE_RETURN_IF_ERROR(Check(rank, rank.rank(), call, 2, "replay with freed memory"));

  COTUNE_TRY(const uint64_t free_bytes, rank.memory().FreeBytes());
  replay = nullptr;
  if (flags.Number("returns", 0) != 0) {
    COTUNE_RETURN_IF_ERROR(
        AwaitFreeBytes(rank, free_bytes + SendBytes(problem) + RecvBytes(problem)));
  }
  COTUNE_RETURN_IF_ERROR(Fill(rank, rank.rank(), registered, 3));
  COTUNE_RETURN_IF_ERROR(Call(group, registered));
  COTUNE_RETURN_IF_ERROR(rank.Await(group, rank.stream()));
  return Check(rank, rank.rank(), registered, 3, "after the graph");
}

Status RunGraphOutlives(ApiRank& rank, const Flags& flags) {
  const std::vector<int32_t> everybody = AllRanks(rank.size());
  COTUNE_TRY(auto first, rank.Split("first", everybody));
  const Problem problem = rank.CaseProblem(first.group.get());
  COTUNE_TRY(const Buffers old, AllocateBuffers(problem, Plain(rank)));
  COTUNE_RETURN_IF_ERROR(Fill(rank, rank.rank(), old, 1));
  COTUNE_RETURN_IF_ERROR(Call(first.group.get(), old));
  COTUNE_RETURN_IF_ERROR(rank.Await(first.group.get(), first.stream));
  COTUNE_TRY(CallMemory::Replay replay,
             rank.memory().Capture(first.stream, [&] { return Call(first.group.get(), old); }));
  COTUNE_RETURN_IF_ERROR(replay());
  COTUNE_RETURN_IF_ERROR(rank.Await(first.group.get(), first.stream));
  COTUNE_RETURN_IF_ERROR(Check(rank, rank.rank(), old, 1, "replay"));
  first.group.reset();

  COTUNE_TRY(auto second, rank.Split("second", everybody));
  COTUNE_TRY(const Buffers own, AllocateBuffers(problem, Plain(rank)));
  Canaries canaries(rank);
  COTUNE_RETURN_IF_ERROR(
      canaries.Add("the receive buffer of the group that has gone", old.recv, RecvBytes(problem)));
  const int64_t calls = flags.Number("calls", 200);
  for (int64_t i = 0; i < calls; ++i) {
    const auto salt = static_cast<uint32_t>(i + 2);
    COTUNE_RETURN_IF_ERROR(Fill(rank, rank.rank(), own, salt));
    // Ranks replay at different times, so that a replay meets none of a peer's.
    if (i % rank.size() == rank.rank()) COTUNE_RETURN_IF_ERROR(replay());
    COTUNE_RETURN_IF_ERROR(Call(second.group.get(), own));
    COTUNE_RETURN_IF_ERROR(rank.Await(second.group.get(), second.stream));
    COTUNE_RETURN_IF_ERROR(Check(rank, rank.rank(), own, salt, "beside replays of another group"));
    COTUNE_RETURN_IF_ERROR(rank.memory().Synchronize(first.stream));
  }
  return canaries.Check("after replays of a group that has gone");
}

Status RunLeft(ApiRank& rank, const Flags&) {
  const int size = rank.size();
  COTUNE_TRY(auto all, rank.Split("all", AllRanks(size)));
  const Problem problem = rank.CaseProblem(all.group.get());
  COTUNE_TRY(const Buffers buffers, AllocateBuffers(problem, Plain(rank)));
  for (uint32_t salt = 1; salt <= 3; ++salt) {
    COTUNE_RETURN_IF_ERROR(Fill(rank, rank.rank(), buffers, salt));
    COTUNE_RETURN_IF_ERROR(Call(all.group.get(), buffers));
    COTUNE_RETURN_IF_ERROR(rank.Await(all.group.get(), all.stream));
    COTUNE_RETURN_IF_ERROR(Check(rank, rank.rank(), buffers, salt, "a call of all ranks"));
  }
  // The first and the last rank make a group of their own. With two ranks the last one has the old
  // group still, and calls on it; with more, it has left as the first one has, and the others call.
  const bool is_in_new = rank.rank() == 0 || rank.rank() == size - 1;
  const bool keeps_old = size == 2 ? rank.rank() == 1 : !is_in_new;
  if (!keeps_old) all.group.reset();
  ApiRank::Subgroup two;
  // Each call has buffers and data of its own, so that one that does nothing, or reads what an
  // earlier one has left, is wrong. The last two make the group ready.
  constexpr uint32_t kCalls = 400;
  std::vector<Buffers> own(kCalls + 2);
  int rank_in_two = -1;
  constexpr uint32_t kFirstSalt = 10;
  const auto call_two = [&](uint32_t call) -> Status {
    COTUNE_RETURN_IF_ERROR(Call(two.group.get(), own[call]));
    COTUNE_RETURN_IF_ERROR(rank.Await(two.group.get(), two.stream));
    return Check(rank, rank_in_two, own[call], kFirstSalt + call, "a call of two ranks");
  };
  if (is_in_new) {
    COTUNE_TRY(const auto sized, rank.Split("two without calls", {0, size - 1}));
    rank_in_two = cotune_group_rank(sized.group.get());
    const Problem of_two = ProblemFor(sized.group.get(), problem.cls.collective, problem.cls.dtype,
                                      problem.cls.reduction, problem.count);
    // Work that waits for the whole GPU is done first: a call of the old group will run for long.
    for (uint32_t call = 0; call < own.size(); ++call) {
      COTUNE_TRY(own[call], AllocateBuffers(of_two, Plain(rank)));
      COTUNE_RETURN_IF_ERROR(Fill(rank, rank_in_two, own[call], kFirstSalt + call));
    }
    // Both ranks have their data when they have met here. On a GPU that other processes use, one of
    // them may need longer for it than the deadline of a call.
    COTUNE_TRY(two, rank.Split("two", {0, size - 1}));
    for (uint32_t call = kCalls; call < own.size(); ++call) COTUNE_RETURN_IF_ERROR(call_two(call));
  }
  PrintNow("began", "");
  if (keeps_old) COTUNE_RETURN_IF_ERROR(Call(all.group.get(), buffers));
  if (is_in_new) {
    // Longer than the call of the old group waits, which then poisons what it reaches.
    const int64_t pause_ns = rank.deadline_ns() * 2 / kCalls;
    int64_t next_ns = NowNs();
    for (uint32_t call = 0; call < kCalls; ++call) {
      std::this_thread::sleep_for(std::chrono::nanoseconds(next_ns - NowNs()));
      next_ns += pause_ns;
      COTUNE_RETURN_IF_ERROR(call_two(call));
    }
  }
  if (keeps_old) {
    const Status ended = rank.Await(all.group.get(), all.stream);
    rank.Note("a call on a group that others have left", ended ? "it has succeeded" : "");
  }
  return {};
}

Status RunCanary(ApiRank& rank, const Flags& flags) {
  const bool is_victim = rank.rank() == flags.Number("victim", 0);
  const int64_t queue = flags.Number("queue", 8);
  const int64_t stop_at = flags.Number("at", 20);
  const std::string until = flags.Text("until", "");
  cotune_group* group = rank.group();
  const bool is_symmetric = flags.Number("symmetric", 0) != 0;
  COTUNE_TRY(const Buffers buffers,
             AllocateBuffers(rank.CaseProblem(group),
                             is_symmetric ? OwnRegistered(rank, group) : Plain(rank)));
  COTUNE_RETURN_IF_ERROR(Fill(rank, rank.rank(), buffers, 1));
  Status done;
  for (int64_t i = 0; done; ++i) {
    for (int64_t queued = 0; done && queued < queue; ++queued) {
      if (is_victim && i == stop_at && queued == queue / 2) {
        PrintNow("gone", "");
        kill(getpid(), SIGSTOP);
      }
      done = Call(group, buffers);
    }
    const Status ended = rank.BlockAndCheck(group, rank.stream());
    if (done) done = ended;
    if (done && i > stop_at + 1'000'000) return Fail(ErrorCode::kInternal, "no call has failed");
  }
  PrintNow("knew", done.error().ToText().c_str());
  Canaries canaries(rank);
  COTUNE_RETURN_IF_ERROR(canaries.Add("the send buffer", buffers.send, SendBytes(buffers.problem)));
  COTUNE_RETURN_IF_ERROR(
      canaries.Add("the receive buffer", buffers.recv, RecvBytes(buffers.problem)));
  rank.Leave();
  // If the memory of the group was freed, this allocation has some of it.
  const uint64_t later_bytes = rank.memory().is_cuda() ? 300ull << 20 : 16ull << 20;
  COTUNE_TRY(void* later, rank.memory().Allocate(later_bytes));
  COTUNE_RETURN_IF_ERROR(canaries.Add("memory that was allocated later", later, later_bytes));
  // The runner lets the victim go on when all others are here, and ends all of them when the victim
  // has been here for a while.
  PrintNow("left", "");
  const int64_t until_ns = NowNs() + 3 * kPatienceNs;
  while (access(until.c_str(), F_OK) != 0 && NowNs() < until_ns) {
    COTUNE_TRY(const bool are_whole, canaries.AreWhole());
    if (!are_whole) break;
  }
  return canaries.Check("after a call that has failed");
}

}  // namespace cotune::gputest
