// Whether a choice computes what the problem asks for, on every rank.
#ifndef COTUNE_CORE_BENCHMARK_CORRECTNESS_CHECK_H_
#define COTUNE_CORE_BENCHMARK_CORRECTNESS_CHECK_H_

#include <cstdint>

#include "core/benchmark/benchmark_parts.h"
#include "core/benchmark/cell_operands.h"
#include "core/benchmark/cell_steps.h"
#include "core/benchmark/choice_removal.h"
#include "core/benchmark/choice_runs.h"
#include "core/benchmark/racing_choice.h"

namespace cotune {

// How a call is made for a check: as a program makes it, or as samples are taken, one on each copy
// of the operands.
enum class CheckBy { kCall, kTimedCalls };

// Collective. Also compares the outputs that are replicated by dataflow across ranks, by their
// hashes: a choice that is listed as reproducible is wrong if they differ, and the verdict of any
// other one gets a note as its reason. Each check has other data than the two before it, so that
// results which an earlier call has left behind are wrong.
class CorrectnessCheck {
 public:
  CorrectnessCheck(const BenchmarkParts& parts, CellSteps& steps, CellOperands& buffers,
                   ChoiceRuns& runs, ChoiceRemoval& removal)
      : parts_(parts), steps_(steps), buffers_(buffers), runs_(runs), removal_(removal) {}

  // A choice that fails or is wrong on some rank is removed on all; one that is right has check_ns.
  // kInternal, on all ranks: they compare different numbers of outputs.
  Status Run(RacingChoice& choice, CheckBy by);

 private:
  StepRecord<CheckedCall> RunOnThisRank(RacingChoice& choice, CheckBy by, uint32_t salt);
  StepRecord<CheckedCall> CheckOnThisRank(RacingChoice& choice, CheckBy by, uint32_t salt);
  // The results are right on every rank.
  Status CompareRanks(RacingChoice& choice, const ExchangedRecords<CheckedCall>& all) const;

  const BenchmarkParts& parts_;
  CellSteps& steps_;
  CellOperands& buffers_;
  ChoiceRuns& runs_;
  ChoiceRemoval& removal_;
  uint32_t checks_ = 0;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_CORRECTNESS_CHECK_H_
