// The last stage of a cell's benchmark: the winner is still right after its timed runs.
#ifndef COTUNE_CORE_BENCHMARK_WINNER_RECHECK_H_
#define COTUNE_CORE_BENCHMARK_WINNER_RECHECK_H_

#include <span>

#include "core/benchmark/correctness_check.h"
#include "core/benchmark/racing_choice.h"
#include "core/selection/select_winner.h"

namespace cotune {

// Collective. Timed runs reuse buffers without looking at them, so a choice that goes wrong in a
// row of calls is found here only.
class WinnerRecheck {
 public:
  WinnerRecheck(CorrectnessCheck& check, const SelectionRules& rules)
      : check_(check), rules_(rules) {}

  // cell.verdicts are those of the choices, in their order. A winner that is wrong has failed
  // afterwards, and the next one is checked.
  Result<DecidedCell> Run(std::span<RacingChoice> choices, CellResult cell);

 private:
  CorrectnessCheck& check_;
  const SelectionRules rules_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_WINNER_RECHECK_H_
