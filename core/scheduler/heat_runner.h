// Runs single heats of the cells of a tune, within the budget that all of them share.
#ifndef COTUNE_CORE_SCHEDULER_HEAT_RUNNER_H_
#define COTUNE_CORE_SCHEDULER_HEAT_RUNNER_H_

#include <cstdint>
#include <span>
#include <string>

#include "core/backend/call_watchdog.h"
#include "core/backend/symmetric_region.h"
#include "core/benchmark/race_loop.h"
#include "core/scheduler/tune_cell.h"
#include "core/scheduler/tune_state.h"

namespace cotune {

// Keeps what each heat leaves for the next one: the time of the job, and how the ranks are lined
// up. All its arguments outlive it. Collective: every rank runs the same heats in the same order.
class HeatRunner {
 public:
  // begin_ns: from the job's begin to that of measuring. `cells` are all those of the pass.
  // `region` holds the operands of symmetric cells; nullptr if there are none.
  HeatRunner(TuneState& state, CallWatchdog& watchdog, std::span<TuneCell> cells,
             SymmetricRegion* region, StartMode start_mode, int64_t begin_ns)
      : state_(state),
        watchdog_(watchdog),
        cells_(cells),
        region_(region),
        start_mode_(start_mode),
        begin_ns_(begin_ns),
        now_ns_(begin_ns) {}

  // Races the callers of a cell, which is one of the cells of the pass. `label` starts the names of
  // this heat's steps; no two heats share one. earlier: as in CellBenchmark. budget_ns 0: there is
  // none.
  Result<HeatResult> Run(TuneCell& cell, std::string label, Heat heat,
                         std::span<const Verdict> earlier, int64_t budget_ns);

  // Returns the beginning of the names of the cell's steps.
  std::string Label(const TuneCell& cell) const;
  StartMode start_mode() const { return start_mode_; }

  // From the job's begin to the end of the latest step; equal on all ranks.
  int64_t now_ns() const { return now_ns_; }
  // Ranks that meet between two heats report the time of the job at the end of that step.
  void set_now_ns(int64_t now_ns) { now_ns_ = now_ns; }
  int64_t elapsed_ns() const { return now_ns_ - begin_ns_; }
  // Goes by the time of the job, so that it is alike on all ranks. There is a budget.
  int64_t BudgetLeftNs() const {
    return state_.settings.budget_ns - state_.measured_ns - elapsed_ns();
  }
  // Returns true if the budget of all passes together is used up.
  bool IsBudgetSpent() const { return state_.settings.budget_ns > 0 && BudgetLeftNs() <= 0; }

 private:
  // Logs, once a tune, that the ranks no longer begin at a common time.
  void WarnOfBusyProcessors(const CellPlace& place, const CellResult& cell);

  TuneState& state_;
  CallWatchdog& watchdog_;
  std::span<TuneCell> cells_;
  SymmetricRegion* region_;
  StartMode start_mode_;
  const int64_t begin_ns_;
  int64_t now_ns_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_HEAT_RUNNER_H_
