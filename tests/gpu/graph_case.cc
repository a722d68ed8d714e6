#include <memory>
#include <vector>

#include "fmt/format.h"
#include "tests/gpu/cases.h"
#include "tests/gpu/problem_lists.h"

namespace cotune::gputest {
namespace {

constexpr int64_t kPlainCallEvery = 10;

// Numbers of moments on the devices, each later than all before.
class Moments {
 public:
  explicit Moments(int64_t first_ns) : last_ns_(first_ns) {}
  int64_t Next() { return ++last_ns_; }

 private:
  int64_t last_ns_;
};

// Calls of one plan in a graph, each with buffers and data of its own: more than one, so that they
// meet each other there.
constexpr size_t kCallsInGraph = 2;

// The calls of one choice.
class CheckedCalls {
 public:
  CheckedCalls(Rank& rank, ChoiceCaller& caller,
               const std::vector<std::unique_ptr<CallBuffers>>& buffers, DataSets& sets)
      : rank_(rank), caller_(caller), buffers_(buffers), sets_(sets) {}

  // A captured graph, again and again on other data, with plain calls between.
  Status RunReplays(int64_t replays, Moments& moments) {
    Device& device = rank_.job().device();
    std::vector<LaunchArguments> arguments;
    for (const auto& buffers : buffers_) {
      LaunchArguments& of_call = arguments.emplace_back();
      of_call.send = buffers->send();
      of_call.recv = buffers->recv();
      of_call.stream = device.stream();
      of_call.deadline_ns = rank_.CallDeadline();
    }
    COTUNE_TRY(const auto captured,
               caller_.PrepareTimed(device, arguments, static_cast<int32_t>(arguments.size())));
    for (int64_t i = 0; i < replays; ++i) {
      const auto replay = [&]() -> Status {
        const auto span =
            captured->Run(device.aligns_ranks() ? moments.Next() : 0, rank_.CallDeadline());
        return span ? Status() : Propagate(span);
      };
      COTUNE_RETURN_IF_ERROR(Run(buffers_.size(), replay, fmt::format("replay {}", i)));
      if (i % kPlainCallEvery != kPlainCallEvery - 1) continue;
      const auto call = [&] { return rank_.Launch(rank_.job(), caller_, *buffers_.front()); };
      COTUNE_RETURN_IF_ERROR(Run(1, call, fmt::format("plain call after replay {}", i)));
    }
    return {};
  }

 private:
  // Runs calls on new data in the first `calls` buffers, and compares them.
  template <class Launch>
  Status Run(size_t calls, const Launch& launch, std::string_view where) {
    const bool reduces = Reduces(caller_.problem().cls.collective);
    const Pattern pattern = reduces ? Pattern::kExact : Pattern::kBits;
    std::vector<const CallData*> data;
    for (size_t i = 0; i < calls; ++i) {
      data.push_back(&sets_.Next(pattern, true));
      COTUNE_RETURN_IF_ERROR(buffers_[i]->Fill(data[i]->sent, data[i]->right));
    }
    COTUNE_RETURN_IF_ERROR(launch());
    COTUNE_RETURN_IF_ERROR(rank_.Await(rank_.job()));
    for (size_t i = 0; i < calls; ++i) {
      COTUNE_RETURN_IF_ERROR(rank_.CheckAnswer(caller_, *buffers_[i], pattern, *data[i],
                                               fmt::format("{}, call {}", where, i)));
    }
    return {};
  }

  Rank& rank_;
  ChoiceCaller& caller_;
  const std::vector<std::unique_ptr<CallBuffers>>& buffers_;
  DataSets& sets_;
};

Status RunProblem(Rank& rank, const Problem& problem, int64_t replays) {
  Job& job = rank.job();
  COTUNE_TRY(ReadyChoices ready, rank.MakeReady(job, problem));
  DataSets sets = rank.SetsFor(problem);
  COTUNE_TRY(const int64_t met, rank.Meet(job, "graphs"));
  Moments moments(met);
  COTUNE_TRY(const auto buffers,
             rank.AllocateBuffers(problem, std::vector<Placement>(kCallsInGraph)));
  for (const auto& caller : ready.callers) {
    const bool is_cuda = job.device().kind() == MemoryKind::kCuda;
    if (is_cuda && !caller->choice().is_capturable) continue;
    ++rank.findings().choices_by_backend[std::string(caller->id().backend())];
    CheckedCalls calls(rank, *caller, buffers, sets);
    const Status done = calls.RunReplays(replays, moments);
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
