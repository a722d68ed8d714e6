// Times tied choices once more, with their buffers in the cache.
#ifndef COTUNE_CORE_BENCHMARK_TIE_BREAK_H_
#define COTUNE_CORE_BENCHMARK_TIE_BREAK_H_

#include <span>
#include <vector>

#include "core/backend/device.h"
#include "core/benchmark/benchmark_parts.h"
#include "core/benchmark/calibration.h"
#include "core/benchmark/cell_operands.h"
#include "core/benchmark/cell_steps.h"
#include "core/benchmark/racing_choice.h"
#include "core/benchmark/start_window.h"
#include "core/problem/problem.h"
#include "core/problem/program.h"
#include "core/selection/select_winner.h"

namespace cotune {

// Collective; what it is given outlives it. Choices that tie when each call finds its buffers out
// of the cache may differ by several percent when it finds them there, and programs do both. So the
// tied ones race again on one copy of the buffers.
class TieBreak {
 public:
  // A tie of this cell can be broken when the race went round over copies of the buffers and one of
  // them fits the cache. Equal on all ranks.
  static bool IsOf(const Program& program, const Problem& problem, const CellOperands& buffers,
                   const Device& device);

  TieBreak(const BenchmarkParts& parts, const Problem& problem, CellOperands& buffers,
           CellSteps& steps, StartWindow& window)
      : parts_(parts), problem_(problem), buffers_(buffers), steps_(steps), window_(window) {}

  // cell.verdicts are those of the choices, in their order. Writes the warm medians of tied choices
  // into them; all are of as many samples. A choice that fails is removed. Where choices tie, frees
  // the timed calls of all.
  Status Run(std::span<RacingChoice> choices, CellResult& cell);

 private:
  // The tied choices as their calibration on one copy would leave them.
  static std::vector<RacingChoice> Entrants(std::span<const RacingChoice> choices,
                                            const std::vector<size_t>& tied, const CellResult& cell,
                                            const SampleRepetitions& repetitions);
  static void TakeOver(RacingChoice& entrant, RacingChoice& choice, Verdict& verdict);

  const BenchmarkParts& parts_;
  const Problem& problem_;
  CellOperands& buffers_;
  CellSteps& steps_;
  StartWindow& window_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_TIE_BREAK_H_
