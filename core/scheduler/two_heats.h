// The two heats of a cell: choices of each step, then the combinations of the fastest of them.
#ifndef COTUNE_CORE_SCHEDULER_TWO_HEATS_H_
#define COTUNE_CORE_SCHEDULER_TWO_HEATS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/scheduler/heat_runner.h"
#include "core/scheduler/processor_watch.h"
#include "core/scheduler/tune_cell.h"
#include "core/scheduler/tune_state.h"

namespace cotune {

// Keeps the first heat of a cell in the cell, until Race. All its arguments outlive it. Collective:
// every rank makes the same calls in the same order.
class TwoHeats {
 public:
  // `heats` runs those of the same cells.
  TwoHeats(TuneState& state, std::span<TuneCell> cells, HeatRunner& heats,
           ProcessorWatch& processors)
      : state_(state), cells_(cells), heats_(heats), processors_(processors) {}

  // Races the first heats of all cells that have two, and then makes the choices of all second
  // heats ready together: one after the other, each cell would wait for its slowest kernel, and the
  // threads for work. Does nothing for fewer than two such cells. Race goes on from there.
  Status RaceFirstHeats();
  // The share of the processors that other programs used meanwhile; nothing if it is not known.
  std::optional<double> share_during_first_heats() const { return share_during_first_heats_; }

  // Races the heats of a cell that has two, without the first if that was raced before, and decides
  // the cell. There is no second heat if the first one has no winner, or has decided and no
  // combination is left, or if the budget is spent at the beginning or by compiling: that of all
  // cells if the first heat has short samples alone, and else that of the cell, which ends at
  // `end_ns`, by the time of the job.
  Result<HeatResult> Race(TuneCell& cell, std::optional<int64_t> end_ns);

 private:
  // Races the first heat, and keeps what it leaves in the cell. budget_ns: as in HeatRunner.
  Status RaceFirstHeat(TuneCell& cell, int64_t budget_ns);
  // Frees the operands of a cell between its heats if those of all cells would take too much. Alike
  // on all ranks.
  static void KeepOrFreeOperands(TuneCell& cell, uint64_t& kept_bytes);
  // Makes the callers of the second heats of these cells ready, all of them at a time, on several
  // threads. They replace those of the first heats. `label` names the step.
  Status CallCombinations(std::span<TuneCell* const> cells, const std::string& label);
  // Replaces the callers of the first heat that do not race again. The combinations race against
  // the winner, its best unfused choice and the default; if the first heat had short samples alone,
  // against all that it has not eliminated.
  static void ReplaceCallers(TuneCell& cell, std::vector<std::unique_ptr<ChoiceCaller>> combined);
  // Waits for the ranks, which compile for different times. kInterrupted on all of them if one was
  // asked to stop.
  Status MeetAfterCompiling(const std::string& label, int64_t deadline_ns);

  TuneState& state_;
  std::span<TuneCell> cells_;
  HeatRunner& heats_;
  ProcessorWatch& processors_;
  std::optional<double> share_during_first_heats_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_TWO_HEATS_H_
