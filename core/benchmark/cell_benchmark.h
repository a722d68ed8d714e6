// Measures one cell on all ranks at the same moment: correctness first, then the race.
#ifndef COTUNE_CORE_BENCHMARK_CELL_BENCHMARK_H_
#define COTUNE_CORE_BENCHMARK_CELL_BENCHMARK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/benchmark/benchmark_parts.h"
#include "core/benchmark/calibration.h"
#include "core/benchmark/cell_operands.h"
#include "core/benchmark/cell_steps.h"
#include "core/benchmark/correctness_check.h"
#include "core/benchmark/preparation.h"
#include "core/benchmark/race.h"
#include "core/benchmark/race_loop.h"
#include "core/benchmark/racing_choice.h"
#include "core/choice/choice_caller.h"
#include "core/selection/select_winner.h"

namespace cotune {

// The order of the stages: preparation, check and calibration of each choice, race, tie break,
// clocks, recheck of the winner. Collective: every rank measures the same cell with callers of the
// same choices in the same order, and gets the same result and winner. Every rank takes part in
// every step whatever happened to it: a failure is a record like any other, and the choice is
// removed on all ranks.
class CellBenchmark {
 public:
  // heat: whether another race of the cell follows. earlier: the verdicts of the race before, whose
  // choices were checked and calibrated by it. budget_ns, total_budget_ns: measuring time of
  // this cell, and of all cells that are left, as in RaceLoop; the second one also counts for
  // checks, and choices that it leaves no time to check are among the refusals of the result.
  // `label` starts the names of its steps.
  CellBenchmark(const BenchmarkParts& parts, std::span<const std::unique_ptr<ChoiceCaller>> callers,
                std::string label, Heat heat, std::span<const Verdict> earlier, int64_t budget_ns,
                int64_t total_budget_ns = 0);

  // operands: those of an earlier heat of the cell, or nullptr; afterwards those of this one, for a
  // heat that follows, unless it failed. Operands are alike on all ranks.
  // kRankLost: a rank was lost; kEnvironment: a rank has no memory for the buffers; kInterrupted:
  // a rank was asked to stop. Failures of choices are verdicts.
  Result<DecidedCell> Run(const Program& program, const Problem& problem,
                          std::unique_ptr<CellOperands>& operands);

  // From the job's begin to the last step.
  int64_t elapsed_ns() const { return steps_.elapsed_ns(); }
  // The window of the last sample; of a cell that follows it is the first.
  int64_t start_window_ns() const { return start_window_ns_; }
  // Returns true if the race has short samples alone, so that another one has to decide.
  bool has_only_qualified() const { return rules_.only_qualifies; }
  // As RaceLoop has it.
  bool has_short_samples() const { return has_short_samples_; }

 private:
  Result<DecidedCell> RunStages(const Program& program, const Problem& problem,
                                std::unique_ptr<CellOperands> operands);
  // Both for each choice in turn, because the first launch of a choice is noted in the journal.
  Status CheckAndCalibrate(const Problem& problem, const SampleRepetitions& repetitions,
                           CorrectnessCheck& check, Calibration& calibration);
  Status CheckAndCalibrate(RacingChoice& choice, const Problem& problem, CorrectnessCheck& check,
                           Calibration& calibration);
  // Moves the choices that the budget left unchecked behind the others. Returns the others.
  std::span<RacingChoice> CheckedChoices();

  const BenchmarkParts parts_;
  const RaceRules rules_;
  const int64_t budget_ns_;
  const int64_t total_budget_ns_;
  PreparedCell prepared_;  // outlives the timed calls of the choices
  std::vector<RacingChoice> choices_;
  CellSteps steps_;
  int64_t start_window_ns_;
  bool has_short_samples_ = false;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_CELL_BENCHMARK_H_
