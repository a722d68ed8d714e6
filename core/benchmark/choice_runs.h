// Runs calls of a choice on this rank, guarded against a launch that does not end.
#ifndef COTUNE_CORE_BENCHMARK_CHOICE_RUNS_H_
#define COTUNE_CORE_BENCHMARK_CHOICE_RUNS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "core/backend/device.h"
#include "core/benchmark/benchmark_parts.h"
#include "core/benchmark/cell_operands.h"
#include "core/benchmark/cell_steps.h"
#include "core/benchmark/racing_choice.h"

namespace cotune {

// Local; what it is given outlives it. A call that fails aborts the group of its backend, because
// the peers would wait for this rank until their deadline. kInterrupted: a call failed after the
// user had asked to stop.
class ChoiceRuns {
 public:
  // copies: how many copies of the operands timed calls go round over.
  ChoiceRuns(const BenchmarkParts& parts, const Problem& problem, CellOperands& buffers,
             const CellSteps& steps, int32_t copies)
      : parts_(parts), problem_(problem), buffers_(buffers), steps_(steps), copies_(copies) {}

  // One call, as a program makes it.
  Result<TimedSpan> CallOnce(RacingChoice& choice);
  // `repetitions` calls in a row as a sample has them, on each copy of the operands in turn,
  // beginning start_elapsed_ns after the job's begin (0: at once). A device that lines the ranks up
  // needs no start time.
  Result<TimedSpan> CallTimed(RacingChoice& choice, int32_t repetitions, int64_t start_elapsed_ns) {
    return CallTimed(choice, repetitions, start_elapsed_ns, false);
  }
  // The same; adds_untimed_call: after a call that is not timed, on one copy of the operands.
  Result<TimedSpan> CallTimed(RacingChoice& choice, int32_t repetitions, int64_t start_elapsed_ns,
                              bool adds_untimed_call);
  // The job's begin on the clock of spans; a device that lines the ranks up counts from their
  // common start.
  int64_t SpanBeginNs() const { return parts_.device.aligns_ranks() ? 0 : steps_.job_begin_ns(); }

 private:
  Result<TimedSpan> RunGuarded(
      RacingChoice& choice, const std::function<Result<TimedSpan>(const LaunchArguments&)>& calls);
  LaunchArguments Arguments() const;
  std::vector<LaunchArguments> ArgumentsOfCopies(const LaunchArguments& arguments) const;

  const BenchmarkParts& parts_;
  const Problem& problem_;
  CellOperands& buffers_;
  const CellSteps& steps_;
  const int32_t copies_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_CHOICE_RUNS_H_
