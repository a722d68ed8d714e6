// Times tied choices once more, with their buffers in the cache.
#ifndef COTUNE_CORE_BENCHMARK_TIE_BREAK_H_
#define COTUNE_CORE_BENCHMARK_TIE_BREAK_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/benchmark/benchmark_parts.h"
#include "core/benchmark/cell_operands.h"
#include "core/benchmark/cell_steps.h"
#include "core/benchmark/racing_choice.h"
#include "core/selection/select_winner.h"

namespace cotune {

// Collective; what it is given outlives it. Choices that tie when each call finds its buffers out
// of the cache may differ by several percent when it finds them there, and programs do both. So the
// race between the tied ones is run again with one copy of the buffers.
class TieBreak {
 public:
  // budget_ns: of this cell by the time of the job from its begin at begin_ns, 0: none.
  TieBreak(const BenchmarkParts& parts, const Problem& problem, CellOperands& buffers,
           CellSteps& steps, int64_t begin_ns, int64_t budget_ns)
      : parts_(parts),
        problem_(problem),
        buffers_(buffers),
        steps_(steps),
        begin_ns_(begin_ns),
        budget_ns_(budget_ns) {}

  // cell.verdicts are those of the choices, in their order. Writes the warm medians of tied choices
  // into them; nothing where the race has timed calls on one copy of the buffers, and when the
  // budget is spent. A choice that fails is removed. Frees the timed calls of all choices.
  Status Run(std::span<RacingChoice> choices, CellResult& cell);

 private:
  std::vector<RacingChoice> EntrantsOf(std::span<const RacingChoice> choices,
                                       const std::vector<size_t>& tied,
                                       const CellResult& cell) const;

  const BenchmarkParts& parts_;
  const Problem& problem_;
  CellOperands& buffers_;
  CellSteps& steps_;
  const int64_t begin_ns_;
  const int64_t budget_ns_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_TIE_BREAK_H_
