// The benchmark stage of a tune: measures its cells.
#ifndef COTUNE_CORE_SCHEDULER_CELL_TIMING_H_
#define COTUNE_CORE_SCHEDULER_CELL_TIMING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/backend/call_watchdog.h"
#include "core/backend/symmetric_region.h"
#include "core/benchmark/race_loop.h"
#include "core/choice/multi_template.h"
#include "core/choice/neighbour_pruning.h"
#include "core/scheduler/processor_watch.h"
#include "core/scheduler/tune_cell.h"
#include "core/scheduler/tune_state.h"

namespace cotune {

// Collective: every rank measures the same cells in the same order. What it is given outlives it.
class CellTiming final : public CellTimer {
 public:
  // begin_ns: from the job's begin to that of measuring. `region` holds the operands of
  // symmetric cells; nullptr where there are none. `processors` may have begun before.
  CellTiming(TuneState& state, CallWatchdog& watchdog, std::span<TuneCell> cells,
             SymmetricRegion* region, ProcessorWatch& processors, StartMode start_mode,
             int64_t begin_ns)
      : state_(state),
        watchdog_(watchdog),
        cells_(cells),
        region_(region),
        start_mode_(start_mode),
        begin_ns_(begin_ns),
        now_ns_(begin_ns),
        processors_(processors) {}

  // The place is one of the cells, and is measured for the first time.
  Result<DecidedCell> TimeCell(MultiTemplate& node, uint64_t size_hint_bytes) override;

  // Races the first heats of all cells that have two, and then makes the choices of all second
  // heats ready together: one after the other, each cell would wait for its slowest kernel, and the
  // threads for work. Does nothing for fewer than two such cells. TimeCell goes on from there.
  Status RaceFirstHeats();
  // Returns true if the first heat of a cell has been raced, and the cell is not measured yet.
  bool HasBegun(const MultiTemplate& node, uint64_t size_hint_bytes) const;

  // Whether the budget of all passes together is used up; by the time of the job, so alike on
  // all ranks.
  bool IsBudgetSpent() const { return state_.settings.budget_ns > 0 && BudgetLeftNs() <= 0; }
  int64_t elapsed_ns() const { return now_ns_ - begin_ns_; }

 private:
  int64_t BudgetLeftNs() const {
    return state_.settings.budget_ns - state_.measured_ns - elapsed_ns();
  }
  // The cells that are left share the budget that is left evenly. 0: there is none.
  int64_t BudgetOfNextCellNs() const;
  // `label` starts the names of this heat's steps; no two heats share one. earlier: as in
  // CellBenchmark. budget_ns 0: there is none.
  Result<DecidedCell> Benchmark(TuneCell& cell, const Problem& problem, std::string label,
                                Heat heat, std::span<const Verdict> earlier, int64_t budget_ns);
  // The race of a cell, with its second heat if it has one. Marks the cell as unsteady if the
  // budget ends it with short samples, which do not decide. budget_ns: as in Benchmark.
  Result<DecidedCell> MeasureOnce(TuneCell& cell, const Problem& problem, int64_t budget_ns);
  // Measures the cell a second time if its times are unsteady and the budget allows it, and marks
  // it if they are unsteady again.
  Result<DecidedCell> MeasureSteadily(TuneCell& cell, const Problem& problem);
  Result<DecidedCell> MeasureAgain(TuneCell& cell, const Problem& problem, DecidedCell first,
                                   int64_t budget_ns);
  // Sets the choices of the cell aside that do not race, because they were slow at the sizes around
  // it; returns them.
  std::vector<SlowChoice> SetSlowCallersAside(TuneCell& cell) const;
  // Moves these choices of the cell back among those that race; false: it has none of them.
  static bool TakeSlowCallersBack(TuneCell& cell, std::span<const SlowChoice> slow);
  // Measures the cell again with those of the slow choices that have to race after all
  // (ChoicesToRaceAfterAll), if there are any, and erases them from `slow`. first: its result
  // without them, which stays if it has a winner and the budget cuts the race with them.
  Result<DecidedCell> MeasureWithSlowCallers(TuneCell& cell, const Problem& problem,
                                             std::vector<SlowChoice>& slow, DecidedCell first);
  // Measures the cell again without the choices that have failed in `first`.
  Result<DecidedCell> MeasureSlowCallers(TuneCell& cell, const Problem& problem, CellResult first);
  // A choice that failed is not tried a second time: it may have waited for a whole timeout.
  static void DropFailedCallers(TuneCell& cell, const CellResult& result);
  // Returns why the times of the cell that was just measured are unsteady; "" if they are not.
  // `share_before`: what other programs used while its first heat was raced. Collective, and equal
  // on all ranks.
  Result<std::string> WhyUnsteady(const DecidedCell& decided, std::string_view label,
                                  std::optional<double> share_before);
  static bool HasTwoHeats(const TuneCell& cell);
  // The beginning of the names of the cell's steps.
  std::string Label(const TuneCell& cell) const;
  // Races the first heat, and keeps what it leaves in the cell. budget_ns: as in Benchmark.
  Status RaceFirstHeat(TuneCell& cell, const Problem& problem, int64_t budget_ns);
  // Frees the operands of a cell between its heats if those of all cells would take too much. Alike
  // on all ranks.
  void KeepOrFreeOperands(TuneCell& cell, uint64_t& kept_bytes) const;
  // Races the heats of a cell that has two, without the first if that was raced before, and decides
  // the cell. There is no second heat if the first one has no winner, or has decided and no
  // combination is left, or if the budget is spent at the beginning or by compiling: that of all
  // cells if the first heat has short samples alone, and else that of the cell, which ends at
  // `end_ns`, on the clock of now_ns_.
  Result<DecidedCell> RaceBothHeats(TuneCell& cell, const Problem& problem,
                                    std::optional<int64_t> end_ns);
  // Makes the callers of the second heats of these cells ready, all of them at a time, on several
  // threads. They replace those of the first heats. Collective; `label` names the step.
  Status CallCombinations(std::span<TuneCell* const> cells, const std::string& label);
  // Replaces the callers of the first heat that do not race again. The combinations race against
  // the winner, its best unfused choice and the default; if the first heat had short samples alone,
  // against all that it has not eliminated.
  static void ReplaceCallers(TuneCell& cell, std::vector<std::unique_ptr<ChoiceCaller>> combined);
  // Waits for the ranks, which compile for different times. kInterrupted on all of them where one
  // was asked to stop.
  Status MeetAfterCompiling(const std::string& label, int64_t deadline_ns);
  // Says, once a tune, that the ranks no longer begin at a common time.
  // where: the cell in the user's words.
  void WarnOfBusyProcessors(const std::string& where, const CellResult& cell);
  void WarnOfUnsteadyCell(const std::string& where, const std::string& reason);
  void Report(const DecidedCell& decided);

  TuneState& state_;
  CallWatchdog& watchdog_;
  std::span<TuneCell> cells_;
  SymmetricRegion* region_;
  StartMode start_mode_;
  const int64_t begin_ns_;
  int64_t now_ns_;
  int32_t cells_done_ = 0;
  bool has_only_qualified_ = false;  // the latest heat, as CellBenchmark reports
  bool has_short_samples_ = false;   // the same
  // The share of the processors that other programs used during RaceFirstHeats.
  std::optional<double> share_during_first_heats_;
  ProcessorWatch& processors_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_CELL_TIMING_H_
