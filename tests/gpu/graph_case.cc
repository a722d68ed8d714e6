#include <memory>
#include <vector>

#include "fmt/format.h"
#include "tests/gpu/cases.h"
#include "tests/gpu/problem_lists.h"

namespace cotune::gputest {
namespace {

constexpr uint32_t kDataSets = 5;
constexpr int64_t kPlainCallEvery = 10;

// Numbers of moments on the devices, each later than all before.
class Moments {
 public:
  explicit Moments(int64_t first_ns) : last_ns_(first_ns) {}
  int64_t Next() { return ++last_ns_; }

 private:
  int64_t last_ns_;
};

struct Replay {
  Rank& rank;
  ChoiceCaller& caller;
  CallBuffers& buffers;
  Pattern pattern;
};

Status CheckAfter(const Replay& replay, const CallData& data, std::string_view where) {
  if (Status s = replay.rank.Await(replay.rank.job()); !s) return s;
  return replay.rank.CheckAnswer(replay.caller, replay.buffers, replay.pattern, data, where);
}

// Calls of one plan in a graph: more than one, so that they meet each other there.
constexpr int32_t kCallsInGraph = 2;

// A captured graph, again and again on other data.
Status RunReplays(const Replay& replay, const std::vector<CallData>& data, int64_t replays,
                  Moments& moments) {
  Job& job = replay.rank.job();
  LaunchArguments arguments;
  arguments.send = replay.buffers.send();
  arguments.recv = replay.buffers.recv();
  arguments.stream = job.device().stream();
  arguments.deadline_ns = replay.rank.CallDeadline();
  COTUNE_TRY(const auto captured,
             replay.caller.PrepareTimed(job.device(), {&arguments, 1}, kCallsInGraph));
  const bool lines_up = job.device().aligns_ranks();
  for (int64_t i = 0; i < replays; ++i) {
    const CallData& now = data[static_cast<size_t>(i) % data.size()];
    if (Status s = replay.buffers.Fill(now.sent, now.right); !s) return s;
    COTUNE_RETURN_IF_ERROR(
        captured->Run(lines_up ? moments.Next() : 0, replay.rank.CallDeadline()));
    if (Status s = CheckAfter(replay, now, fmt::format("replay {}", i)); !s) return s;
    if (i % kPlainCallEvery != kPlainCallEvery - 1) continue;
    const CallData& plain = data[static_cast<size_t>(i + 1) % data.size()];
    if (Status s = replay.buffers.Fill(plain.sent, plain.right); !s) return s;
    if (Status s = replay.rank.Launch(job, replay.caller, replay.buffers); !s) return s;
    if (Status s = CheckAfter(replay, plain, fmt::format("plain call after replay {}", i)); !s) {
      return s;
    }
  }
  return {};
}

Status RunProblem(Rank& rank, const Problem& problem, int64_t replays) {
  Job& job = rank.job();
  COTUNE_TRY(ReadyChoices ready, rank.MakeReady(job, problem));
  const Pattern pattern = Reduces(problem.cls.collective) ? Pattern::kExact : Pattern::kBits;
  std::vector<CallData> data;
  for (uint32_t salt = 0; salt < kDataSets; ++salt) {
    data.push_back(DataFor(problem, job.rank(), pattern, salt, true));
  }
  COTUNE_TRY(const int64_t met, rank.Meet(job, "graphs"));
  Moments moments(met);
  COTUNE_TRY(auto buffers,
             CallBuffers::Allocate(job.device(), problem, job.rank(), {}, rank.symmetric()));
  for (const auto& caller : ready.callers) {
    const bool is_cuda = job.device().kind() == MemoryKind::kCuda;
    if (is_cuda && !caller->choice().is_capturable) continue;
    ++rank.findings().choices_by_backend[std::string(caller->id().backend())];
    const Status done = RunReplays({rank, *caller, *buffers, pattern}, data, replays, moments);
    if (!done) return Fail(done.error().code, done.error().ToText(), TextOf(*caller));
  }
  return {};
}

}  // namespace

Status RunGraphs(Rank& rank, const Flags& flags) {
  Job& job = rank.job();
  COTUNE_TRY(const auto classes, ClassesOf(job, flags));
  int root = 0;
  for (const ProblemClass& cls : classes) {
    for (const uint64_t count : CountsOf(flags, "1001,40013")) {
      const Problem problem = rank.OnBuffers(Rank::ProblemOf(
          job, cls.collective, cls.dtype, cls.reduction, count, false, root++ % job.world_size()));
      if (Status s = RunProblem(rank, problem, flags.Number("replays", 100)); !s) return s;
    }
  }
  return {};
}

}  // namespace cotune::gputest
