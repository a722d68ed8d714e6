#include "core/scheduler/two_heats.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/choice/choice_lists.h"
#include "core/choice/precompile.h"
#include "core/ranks/step_record.h"

namespace cotune {
namespace {

// Bytes of operands, on the device, that cells keep between their heats. Other cells make theirs
// anew, which takes the time of writing them. Little memory may be left beside a model, and the
// largest cell needs some of it.
constexpr uint64_t kKeptBytesMax = uint64_t{128} << 20;

// Returns whether the race of the cell has ended before the choice was eliminated.
bool IsStillRacing(const CellResult& cell, const ChoiceId& id) {
  return std::any_of(cell.verdicts.begin(), cell.verdicts.end(), [&](const Verdict& verdict) {
    return verdict.id == id && verdict.outcome == Outcome::kTimed && verdict.wrong_elements == 0;
  });
}

}  // namespace

Status TwoHeats::RaceFirstHeats() {
  std::vector<TuneCell*> cells;
  for (TuneCell& cell : cells_) {
    if (HasTwoHeats(cell)) cells.push_back(&cell);
  }
  // A cell alone has nothing to compile its combinations together with.
  if (cells.size() < 2) return {};
  processors_.Begin();
  uint64_t kept_bytes = 0;
  for (size_t i = 0; i < cells.size() && !heats_.IsBudgetSpent(); ++i) {
    // The heats that are left, one or two of each cell, share what is left of the budget.
    const auto heats_left = static_cast<int64_t>(cells_.size() + cells.size() - i);
    const bool has_budget = state_.settings.budget_ns > 0;
    const int64_t budget_ns =
        has_budget ? std::max<int64_t>(1, heats_.BudgetLeftNs() / heats_left) : 0;
    const Problem problem = cells[i]->place.problem();
    const ScopedSpan span(state_.parts.observer, SpanKind::kCell, ToText(problem),
                          ToText(problem.cls));
    if (Status raced = RaceFirstHeat(*cells[i], budget_ns); !raced) {
      return WhileMeasuring(std::move(raced.error()), cells[i]->place);
    }
    KeepOrFreeOperands(*cells[i], kept_bytes);
  }
  if (processors_.JudgesCells() && heats_.start_mode() != StartMode::kDevice) {
    int64_t now_ns = heats_.now_ns();
    COTUNE_TRY(share_during_first_heats_,
               processors_.ShareOfOtherPrograms("first heats processors", now_ns));
    heats_.set_now_ns(now_ns);
  }
  if (heats_.IsBudgetSpent()) return {};
  const StageSpan stage(state_.parts.observer, Stage::kPrecompile);
  return CallCombinations(cells, "cells compiled");
}

Result<HeatResult> TwoHeats::Race(TuneCell& cell, std::optional<int64_t> end_ns) {
  const bool is_alone = !cell.first_heat;
  if (is_alone) {
    const int64_t budget_ns = end_ns ? (*end_ns - heats_.now_ns() + 1) / 2 : 0;
    COTUNE_RETURN_IF_ERROR(RaceFirstHeat(cell, budget_ns));
  }
  HeatResult& first = *cell.first_heat;
  // A first heat of short samples decides nothing, so that the second one may take more than the
  // share of the cell.
  const auto is_budget_spent = [&] {
    const bool has_decided = !first.has_short_samples;
    return heats_.IsBudgetSpent() || (has_decided && end_ns && heats_.now_ns() >= *end_ns);
  };
  if (!first.decided.winner || is_budget_spent()) return std::move(first);
  if (is_alone) {
    TuneCell* const only[] = {&cell};
    COTUNE_RETURN_IF_ERROR(CallCombinations(only, heats_.Label(cell) + " compiled"));
  }
  // The combinations were compiled within the budget of the cell.
  if (!cell.has_second_heat || cell.callers.empty() || is_budget_spent()) return std::move(first);
  const Heat heat = first.has_only_qualified ? Heat::kSecondOfTwo : Heat::kOnly;
  COTUNE_TRY(HeatResult second,
             heats_.Run(cell, heats_.Label(cell) + " combined", heat, first.decided.cell.verdicts,
                        end_ns ? std::max<int64_t>(1, *end_ns - heats_.now_ns()) : 0));
  // A cell has no winner if nothing of its second heat has a time: that of the first heat is among
  // the choices that no longer run.
  second.decided = Decide(JoinHeats(std::move(first.decided.cell), std::move(second.decided.cell)),
                          SelectionRules::Of(state_.settings));
  return second;
}

Status TwoHeats::RaceFirstHeat(TuneCell& cell, int64_t budget_ns) {
  COTUNE_TRY(cell.first_heat,
             heats_.Run(cell, heats_.Label(cell), Heat::kFirstOfTwo, {}, budget_ns));
  return {};
}

void TwoHeats::KeepOrFreeOperands(TuneCell& cell, uint64_t& kept_bytes) {
  if (cell.operands == nullptr) return;
  const Program& program = cell.place.node->program();
  const Problem problem = cell.place.problem();
  const uint64_t bytes = CellOperands::AllocatedBytes(program, problem, cell.operands->copies());
  // The operands of all symmetric cells lie in one region.
  const bool is_symmetric = problem.cls.buffer_class == BufferClass::kSymmetric;
  if (is_symmetric || kept_bytes + bytes > kKeptBytesMax) {
    cell.operands.reset();
  } else {
    kept_bytes += bytes;
  }
}

Status TwoHeats::CallCombinations(std::span<TuneCell* const> cells, const std::string& label) {
  TuneParts& parts = state_.parts;
  std::vector<std::vector<std::unique_ptr<ChoiceCaller>>> combined(cells.size());
  std::vector<ChoiceCaller*> to_compile;
  bool has_second = false;
  for (size_t i = 0; i < cells.size(); ++i) {
    const CellPlace& place = cells[i]->place;
    if (!cells[i]->first_heat || !cells[i]->first_heat->decided.winner) continue;
    const HeatResult& first = *cells[i]->first_heat;
    for (const Choice& choice :
         place.node->CombineFastest(place.hint_bytes, first.decided.cell.verdicts)) {
      auto caller = MakeCaller(parts.groups, place.node->program(), place.problem(), choice);
      if (!caller) continue;
      to_compile.push_back(caller->get());
      combined[i].push_back(std::move(*caller));
    }
    cells[i]->has_second_heat = !combined[i].empty() || first.has_only_qualified;
    has_second = has_second || cells[i]->has_second_heat;
  }
  if (!has_second) return {};
  // The plans of the first heat are still there, so that their compiled code is found, unless a
  // failure has made their group anew.
  const int64_t warm_timeout_ns = state_.settings.warm_timeout_ns;
  const int64_t ready_by_ns = DeadlineAfter(parts.clock.now_ns(), warm_timeout_ns);
  Status ready =
      PrecompileAll(to_compile, state_.settings.precompile_threads, ready_by_ns,
                    {parts.exchange.rank(), parts.exchange.world_size()}, parts.watchdog,
                    parts.prepare_notes, [&parts] { return parts.observer.StopRequested(); });
  if (!ready) {
    // The thread whose call is stuck still uses them.
    parts.watchdog->Keep(std::make_shared<decltype(combined)>(std::move(combined)));
    return Propagate(ready);
  }
  for (size_t i = 0; i < cells.size(); ++i) {
    if (cells[i]->has_second_heat) ReplaceCallers(*cells[i], std::move(combined[i]));
  }
  // The meeting has time of its own: a rank that compiles for all of the time above would come too
  // late for the others.
  return MeetAfterCompiling(
      label, DeadlineAfter(std::max(parts.clock.now_ns(), ready_by_ns), warm_timeout_ns));
}

void TwoHeats::ReplaceCallers(TuneCell& cell, std::vector<std::unique_ptr<ChoiceCaller>> combined) {
  const HeatResult& first = *cell.first_heat;
  const Winner& winner = *first.decided.winner;
  std::erase_if(cell.callers, [&](const std::unique_ptr<ChoiceCaller>& caller) {
    const bool is_to_beat = caller->id() == winner.id || caller->id() == winner.fallback ||
                            (winner.best_unfused && caller->id() == winner.best_unfused->id);
    return !is_to_beat &&
           !(first.has_only_qualified && IsStillRacing(first.decided.cell, caller->id()));
  });
  std::move(combined.begin(), combined.end(), std::back_inserter(cell.callers));
}

Status TwoHeats::MeetAfterCompiling(const std::string& label, int64_t deadline_ns) {
  TuneParts& parts = state_.parts;
  const Status own = parts.observer.StopRequested() ? Status(TuneInterrupted()) : Status{};
  COTUNE_TRY(const auto all, ExchangeRecords(parts.exchange, label,
                                             StepRecord<Done>::FromStatus(own), 0, deadline_ns));
  heats_.set_now_ns(all.elapsed_ns);
  if (all.SomeFailedWith(ErrorCode::kInterrupted)) return TuneInterrupted();
  return {};
}

}  // namespace cotune
