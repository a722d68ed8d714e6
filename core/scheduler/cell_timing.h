// The benchmark stage of a tune: measures its cells.
#ifndef COTUNE_CORE_SCHEDULER_CELL_TIMING_H_
#define COTUNE_CORE_SCHEDULER_CELL_TIMING_H_

#include <cstdint>
#include <span>
#include <vector>

#include "core/backend/call_watchdog.h"
#include "core/backend/symmetric_region.h"
#include "core/choice/multi_template.h"
#include "core/choice/neighbour_pruning.h"
#include "core/scheduler/heat_runner.h"
#include "core/scheduler/processor_watch.h"
#include "core/scheduler/steady_measurement.h"
#include "core/scheduler/tune_cell.h"
#include "core/scheduler/tune_state.h"
#include "core/scheduler/two_heats.h"

namespace cotune {

// Collective: every rank measures the same cells in the same order. What it is given outlives it.
class CellTiming final : public CellTimer {
 public:
  // begin_ns: from the job's begin to that of measuring. `region` holds the operands of
  // symmetric cells; nullptr if there are none. `processors` may have begun before.
  CellTiming(TuneState& state, CallWatchdog& watchdog, std::span<TuneCell> cells,
             SymmetricRegion* region, ProcessorWatch& processors, StartMode start_mode,
             int64_t begin_ns)
      : state_(state),
        cells_(cells),
        heats_(state, watchdog, cells, region, start_mode, begin_ns),
        two_heats_(state, cells, heats_, processors),
        steady_(state, heats_, two_heats_, processors) {}

  // The place is one of the cells, and is measured for the first time.
  Result<DecidedCell> TimeCell(MultiTemplate& node, uint64_t size_hint_bytes) override;

  // As in TwoHeats. TimeCell goes on from there.
  Status RaceFirstHeats() { return two_heats_.RaceFirstHeats(); }
  // Returns true if the first heat of a cell has been raced, and the cell is not measured yet.
  bool HasBegun(const MultiTemplate& node, uint64_t size_hint_bytes) const;

  // As in HeatRunner.
  bool IsBudgetSpent() const { return heats_.IsBudgetSpent(); }
  int64_t elapsed_ns() const { return heats_.elapsed_ns(); }

 private:
  // The cells that are left share the budget that is left evenly. 0: there is none.
  int64_t BudgetOfNextCellNs() const;
  // Sets the choices of the cell aside that do not race, because they were slow at the sizes around
  // it; returns them.
  std::vector<SlowChoice> SetSlowChoicesAside(TuneCell& cell) const;
  // Measures the cell again with those of the slow choices that have to race after all
  // (ChoicesToRaceAfterAll), if there are any, and erases them from `slow`. first: its result
  // without them, which stays if it has a winner and the budget cuts the race with them.
  Result<DecidedCell> MeasureWithSlowChoices(TuneCell& cell, std::vector<SlowChoice>& slow,
                                             DecidedCell first);
  // Measures the cell again without the choices that have failed in `first`.
  Result<DecidedCell> MeasureSlowChoices(TuneCell& cell, CellResult first);
  void Report(const DecidedCell& decided);

  TuneState& state_;
  std::span<TuneCell> cells_;
  HeatRunner heats_;
  TwoHeats two_heats_;
  SteadyMeasurement steady_;
  int32_t cells_done_ = 0;
};

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_CELL_TIMING_H_
