#include "core/scheduler/cell_timing.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/base/check.h"

namespace cotune {
namespace {

// Returns whether the cell has a verdict or a refusal of the choice.
bool IsNamed(const CellResult& cell, const std::string& choice) {
  return std::any_of(cell.verdicts.begin(), cell.verdicts.end(),
                     [&](const Verdict& each) { return each.id.text() == choice; }) ||
         std::any_of(cell.refusals.begin(), cell.refusals.end(),
                     [&](const Refusal& each) { return each.choice == choice; });
}

}  // namespace

int64_t CellTiming::BudgetOfNextCellNs() const {
  if (state_.settings.budget_ns <= 0) return 0;
  const int64_t cells_left = static_cast<int64_t>(cells_.size()) - cells_done_;
  return std::max<int64_t>(1, heats_.BudgetLeftNs() / cells_left);
}

bool CellTiming::HasBegun(const MultiTemplate& node, uint64_t size_hint_bytes) const {
  return std::any_of(cells_.begin(), cells_.end(), [&](const TuneCell& each) {
    return each.place.node == &node && each.place.hint_bytes == size_hint_bytes &&
           each.first_heat.has_value();
  });
}

Result<DecidedCell> CellTiming::TimeCell(MultiTemplate& node, uint64_t size_hint_bytes) {
  TuneParts& parts = state_.parts;
  const CellPlace place{&node, size_hint_bytes};
  const auto cell = std::find_if(cells_.begin(), cells_.end(),
                                 [&](const TuneCell& each) { return each.place == place; });
  if (cell == cells_.end()) {
    return Fail(ErrorCode::kInternal, "a cell was timed outside of its tune",
                ToText(place.problem()));
  }
  const Problem problem = place.problem();
  const ScopedSpan span(parts.observer, SpanKind::kCell, ToText(problem), ToText(problem.cls));
  parts.observer.OnCellStart(cells_done_, static_cast<int32_t>(cells_.size()), problem);
  std::vector<SlowChoice> slow = SetSlowChoicesAside(*cell);
  Result<DecidedCell> decided = steady_.Measure(*cell, BudgetOfNextCellNs());
  if (decided) decided = MeasureWithSlowChoices(*cell, slow, std::move(*decided));
  cell->operands.reset();
  cell->reference.reset();
  if (!decided) return WhileMeasuring(std::move(decided.error()), place);
  cell->callers.clear();
  cell->slow_callers.clear();
  const std::vector<Refusal> unchecked = std::move(decided->cell.refusals);
  decided->cell.refusals = node.ListChoices(parts.groups, size_hint_bytes).refusals;
  for (SlowChoice& each : slow) decided->cell.refusals.push_back(std::move(each.refusal));
  for (const Refusal& refusal : unchecked) {
    if (!IsNamed(decided->cell, refusal.choice)) decided->cell.refusals.push_back(refusal);
  }
  for (Refusal& refusal : node.RefuseSetAside(size_hint_bytes, decided->cell.verdicts)) {
    decided->cell.refusals.push_back(std::move(refusal));
  }
  if (decided->winner) {
    ++state_.outcome.measured_cells;
  } else {
    // The error names the refusals, which are known by now, and the cell in the user's words.
    *decided = Decide(std::move(decided->cell), SelectionRules::Of(state_.settings));
    COTUNE_CHECK(!decided->winner, "refusals give a cell no winner");
    decided->winner.error().where = place.InWords();
  }
  Report(*decided);
  ++cells_done_;
  return decided;
}

std::vector<SlowChoice> CellTiming::SetSlowChoicesAside(TuneCell& cell) const {
  if (!state_.settings.neighbour_pruning) return {};
  std::vector<SlowChoice> slow = cell.place.node->RefuseSlow(cell.place.hint_bytes);
  SetSlowCallersAside(cell, slow);
  return slow;
}

Result<DecidedCell> CellTiming::MeasureWithSlowChoices(TuneCell& cell,
                                                       std::vector<SlowChoice>& slow,
                                                       DecidedCell first) {
  // An unsteady cell is measured again by the next tune.
  if (first.winner && (first.cell.is_unsteady || IsBudgetSpent())) return first;
  const std::vector<SlowChoice> to_race = ChoicesToRaceAfterAll(slow, first);
  if (!TakeSlowCallersBack(cell, to_race)) return first;
  const int32_t unsteady_cells = state_.outcome.unsteady_cells;
  COTUNE_TRY(DecidedCell joined, MeasureSlowChoices(cell, first.cell));
  // A race that the budget has cut shows less than the one before it.
  if (first.winner && (!joined.winner || joined.cell.is_unsteady)) {
    state_.outcome.unsteady_cells = unsteady_cells;
    return first;
  }
  std::erase_if(slow, [&](const SlowChoice& each) {
    return std::any_of(to_race.begin(), to_race.end(), [&](const SlowChoice& other) {
      return other.refusal.choice == each.refusal.choice;
    });
  });
  return joined;
}

Result<DecidedCell> CellTiming::MeasureSlowChoices(TuneCell& cell, CellResult first) {
  DropFailedCallers(cell, first);
  cell.races_slow_callers = true;
  COTUNE_TRY(DecidedCell slow, steady_.Measure(cell, BudgetOfNextCellNs()));
  // The winner stays that of the second race: no choice that has failed before has a time.
  slow.cell = JoinHeats(std::move(first), std::move(slow.cell));
  return slow;
}

void CellTiming::Report(const DecidedCell& decided) {
  TuneParts& parts = state_.parts;
  if (!decided.winner) {
    const std::string text = decided.winner.error().ToText();
    if (decided.cell.verdicts.empty()) {
      EmitRefusedCells(parts.observer, text);
    } else {
      EmitLine(parts.observer, Severity::kWarning, text);
    }
    return;
  }
  if (parts.exchange.rank() == 0 && parts.known != nullptr) {
    // Losing the journal costs a repeated measurement later, never this tune.
    if (Status recorded = parts.known->Record(decided.cell, *decided.winner); !recorded) {
      EmitLine(parts.observer, Severity::kWarning, recorded.error().ToText());
    }
  }
  parts.observer.OnCellDone(cells_done_, static_cast<int32_t>(cells_.size()), decided.cell,
                            *decided.winner);
}

}  // namespace cotune
