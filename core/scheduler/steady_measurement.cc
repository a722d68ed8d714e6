#include "core/scheduler/steady_measurement.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"
#include "core/base/counted.h"
#include "core/scheduler/foreign_load.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// Returns why a choice wins in a cell that has short samples alone.
std::string WhyShortSamplesWin(const Winner& winner) {
  return fmt::format(
      "{}, {:.1f} us: the budget ended the measurement after the first rounds, which eliminate "
      "slow choices and do not show which one is the fastest; the next tune measures this size "
      "again",
      winner.id == winner.fallback ? "the default" : "the fastest, without a default",
      static_cast<double>(winner.median_ns) / 1e3);
}

// Returns why a cell whose race the budget has ended runs its winner. `settings` are those of the
// tune.
std::string WhyCutCellWins(const DecidedCell& decided, const TuningSettings& settings) {
  const Winner& winner = *decided.winner;
  const auto found = std::find_if(decided.cell.verdicts.begin(), decided.cell.verdicts.end(),
                                  [&](const Verdict& verdict) { return verdict.id == winner.id; });
  COTUNE_CHECK(found != decided.cell.verdicts.end(), "a winner has a verdict");
  return fmt::format(
      "{}, {:.1f} us: the budget ended the measurement after {} of the {} that min_rounds asks "
      "for, so that they do not show which choice is the fastest; the next tune measures this size "
      "again",
      winner.id == winner.fallback ? "the default" : "the fastest, without a default",
      static_cast<double>(winner.median_ns) / 1e3,
      Counted(static_cast<int64_t>(found->samples_ns.size()), "round"), settings.min_rounds);
}

}  // namespace

Result<DecidedCell> SteadyMeasurement::Measure(TuneCell& cell, int64_t budget_ns) {
  const int64_t end_ns = heats_.now_ns() + budget_ns;
  const auto share_before = cell.first_heat ? two_heats_.share_during_first_heats() : std::nullopt;
  processors_.Begin();
  COTUNE_TRY(DecidedCell decided, MeasureOnce(cell, budget_ns));
  if (!decided.winner) return decided;
  if (decided.cell.is_unsteady) {
    ++state_.outcome.unsteady_cells;  // the budget has cut it
    return decided;
  }
  if (!processors_.JudgesCells()) return decided;
  const std::string label = heats_.Label(cell) + " processors";
  COTUNE_TRY(std::string reason, WhyUnsteady(decided, label, share_before));
  if (reason.empty()) return decided;
  DropFailedCallers(cell, decided.cell);
  const bool has_budget = budget_ns == 0 || heats_.now_ns() < end_ns;
  bool is_cut = false;
  if (has_budget && !cell.callers.empty()) {
    processors_.Restart();  // the load during the first measurement no longer counts
    COTUNE_TRY(decided, MeasureAgain(cell, std::move(decided),
                                     budget_ns == 0 ? 0 : end_ns - heats_.now_ns()));
    if (!decided.winner) return decided;
    is_cut = decided.cell.is_unsteady;
    if (!is_cut) {
      COTUNE_TRY(reason, WhyUnsteady(decided, label + " again", {}));
      if (reason.empty()) return decided;
    }
  }
  decided.cell.is_unsteady = true;
  WarnOfUnsteadyCell(cell.place, reason);
  decided = Decide(std::move(decided.cell), SelectionRules::Of(state_.settings));
  if (is_cut && decided.winner) decided.winner->why = WhyCutCellWins(decided, state_.settings);
  return decided;
}

Result<DecidedCell> SteadyMeasurement::MeasureOnce(TuneCell& cell, int64_t budget_ns) {
  // A cell of two heats shares its budget between them; 0: there is none.
  const auto end_ns = budget_ns == 0 ? std::nullopt : std::optional(heats_.now_ns() + budget_ns);
  COTUNE_TRY(HeatResult raced,
             HasTwoHeats(cell) ? two_heats_.Race(cell, end_ns)
                               : heats_.Run(cell, heats_.Label(cell), Heat::kOnly, {}, budget_ns));
  DecidedCell& decided = raced.decided;
  if (!decided.winner) return std::move(decided);
  if (raced.has_short_samples) {
    decided.cell.is_unsteady = true;
    decided = Decide(std::move(decided.cell), SelectionRules::Of(state_.settings));
    if (decided.winner) decided.winner->why = WhyShortSamplesWin(*decided.winner);
  } else if (decided.cell.is_unsteady) {
    decided.winner->why = WhyCutCellWins(decided, state_.settings);
  }
  return std::move(decided);
}

Result<DecidedCell> SteadyMeasurement::MeasureAgain(TuneCell& cell, DecidedCell first,
                                                    int64_t budget_ns) {
  COTUNE_TRY(HeatResult again,
             heats_.Run(cell, heats_.Label(cell) + " again", Heat::kOnly, {}, budget_ns));
  return Decide(JoinHeats(std::move(first.cell), std::move(again.decided.cell)),
                SelectionRules::Of(state_.settings));
}

Result<std::string> SteadyMeasurement::WhyUnsteady(const DecidedCell& decided,
                                                   std::string_view label,
                                                   std::optional<double> share_before) {
  // GPUs measure by themselves: the processors matter to the host's part of a call only.
  if (heats_.start_mode() != StartMode::kDevice) {
    int64_t now_ns = heats_.now_ns();
    COTUNE_TRY(const std::optional<double> now, processors_.ShareOfOtherPrograms(label, now_ns));
    heats_.set_now_ns(now_ns);
    const std::optional<double> share = std::max(now, share_before);
    if (share > kForeignShareMax) {
      return fmt::format("other programs used {:.0f} % of the processors", 100 * *share);
    }
  }
  if (!HasWideInterval(decided.cell, *decided.winner)) return std::string();
  return fmt::format("the 99 % interval of {} is wider than {:.0f} % of its median",
                     decided.winner->id.text(), 100 * kSteadyWidth);
}

void SteadyMeasurement::WarnOfUnsteadyCell(const CellPlace& place, const std::string& reason) {
  ++state_.outcome.unsteady_cells;
  // The end of the tune has their number.
  if (state_.parts.exchange.rank() != 0 || state_.outcome.unsteady_cells > 1) return;
  EmitLine(state_.parts.observer, Severity::kWarning,
           fmt::format("the times of {} were unsteady ({}), so that they do not show which choice "
                       "is faster",
                       place.InWords(), reason));
}

}  // namespace cotune
