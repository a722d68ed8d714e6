#include "fmt/format.h"
#include "tests/gpu/cases.h"
#include "tests/gpu/problem_lists.h"

namespace cotune::gputest {
namespace {

// Every choice at one place of the buffers.
Status RunPlacement(Rank& rank, ReadyChoices& ready, const std::vector<Pattern>& patterns,
                    const Placement& placement, DataSets& sets) {
  Job& job = rank.job();
  COTUNE_TRY(const auto allocated, rank.AllocateBuffers(ready.problem, {placement}));
  CallBuffers& buffers = *allocated.front();
  const std::string where =
      fmt::format("offsets {} and {}", placement.send_offset, placement.recv_offset);
  for (const auto& caller : ready.callers) {
    const bool with_nan = KeepsNan(caller->id().backend(), ready.problem);
    for (Pattern pattern : patterns) {
      const CallData& data = sets.Next(pattern, with_nan);
      if (Status s = buffers.Fill(data.sent, data.right); !s) return s;
      if (Status s = rank.Launch(job, *caller, buffers); !s) return s;
      if (Status s = rank.Await(job); !s) {
        s.error().where += " " + TextOf(*caller);
        return s;
      }
      if (Status s = rank.CheckAnswer(*caller, buffers, pattern, data, where); !s) return s;
    }
  }
  return {};
}

Status RunProblem(Rank& rank, const Problem& problem, const std::vector<Pattern>& patterns) {
  Result<ReadyChoices> ready = rank.MakeReady(rank.job(), problem);
  if (!ready) {
    // No backend need exchange blocks in place, or work in place on registered buffers.
    const bool need_not_be =
        problem.cls.in_place && (problem.cls.collective == Collective::kAllToAll ||
                                 problem.cls.buffer_class == BufferClass::kSymmetric);
    if (ready.error().code == ErrorCode::kUnsupported && need_not_be) return {};
    return Propagate(ready);
  }
  for (const auto& caller : ready->callers) {
    ++rank.findings().choices_by_backend[std::string(caller->id().backend())];
  }
  DataSets sets = rank.SetsFor(problem);
  for (const Placement& placement : {Placement{0, 0}, Placement{1, 3}}) {
    if (Status s = RunPlacement(rank, *ready, patterns, placement, sets); !s) return s;
  }
  return {};
}

}  // namespace

Status RunValues(Rank& rank, const Flags& flags) {
  Job& job = rank.job();
  COTUNE_TRY(const auto classes, ClassesOf(job, flags));
  int root = 0;
  for (const ProblemClass& cls : classes) {
    COTUNE_TRY(const std::vector<Pattern> patterns, PatternsOf(flags, cls));
    for (const bool in_place : {false, true}) {
      for (const uint64_t count : CountsOf(flags, "0,1,3,127,4097,262157")) {
        const Problem problem =
            rank.OnBuffers(Rank::ProblemOf(job, cls.collective, cls.dtype, cls.reduction, count,
                                           in_place, root++ % job.world_size()));
        if (Status s = RunProblem(rank, problem, patterns); !s) return s;
      }
    }
  }
  return {};
}

}  // namespace cotune::gputest
