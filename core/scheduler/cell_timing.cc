#include "core/scheduler/cell_timing.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "core/base/check.h"
#include "core/base/counted.h"
#include "core/benchmark/cell_benchmark.h"
#include "core/choice/choice_lists.h"
#include "core/choice/precompile.h"
#include "core/ranks/step_record.h"
#include "core/scheduler/foreign_load.h"
#include "fmt/format.h"

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

bool IsAmong(std::span<const SlowChoice> slow, const ChoiceId& id) {
  return std::any_of(slow.begin(), slow.end(),
                     [&](const SlowChoice& each) { return each.refusal.choice == id.text(); });
}

// Returns whether the cell has a verdict or a refusal of the choice.
bool IsNamed(const CellResult& cell, const std::string& choice) {
  return std::any_of(cell.verdicts.begin(), cell.verdicts.end(),
                     [&](const Verdict& each) { return each.id.text() == choice; }) ||
         std::any_of(cell.refusals.begin(), cell.refusals.end(),
                     [&](const Refusal& each) { return each.choice == choice; });
}

// Returns why a choice wins in a cell that has short samples alone.
std::string WhyShortSamplesWin(const Winner& winner) {
  return fmt::format(
      "{}, {:.1f} us: the budget ended the measurement after the first rounds, which eliminate "
      "slow "
      "choices and do not show which one is the fastest; the next tune measures this size again",
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

// Adds the cell in the user's words to an error that ends the tune: the names of steps have only
// its number.
tl::unexpected<Error> WhileMeasuring(Error error, const std::string& cell) {
  if (error.code != ErrorCode::kInterrupted) {
    error.where += fmt::format("{}while {} was measured", error.where.empty() ? "" : ", ", cell);
  }
  return tl::make_unexpected(std::move(error));
}

}  // namespace

int64_t CellTiming::BudgetOfNextCellNs() const {
  if (state_.settings.budget_ns <= 0) return 0;
  const int64_t cells_left = static_cast<int64_t>(cells_.size()) - cells_done_;
  return std::max<int64_t>(1, BudgetLeftNs() / cells_left);
}

bool CellTiming::HasBegun(const MultiTemplate& node, uint64_t size_hint_bytes) const {
  return std::any_of(cells_.begin(), cells_.end(), [&](const TuneCell& each) {
    return each.place.node == &node && each.place.hint_bytes == size_hint_bytes &&
           each.first_heat.has_value();
  });
}

bool CellTiming::HasTwoHeats(const TuneCell& cell) {
  return cell.place.node->combinations_max(cell.place.hint_bytes) > 0;
}

std::string CellTiming::Label(const TuneCell& cell) const {
  return fmt::format("cell {}{}", &cell - cells_.data(),
                     cell.races_slow_callers ? " slow choices" : "");
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
  std::vector<SlowChoice> slow = SetSlowCallersAside(*cell);
  Result<DecidedCell> decided = MeasureSteadily(*cell, problem);
  if (decided) decided = MeasureWithSlowCallers(*cell, problem, slow, std::move(*decided));
  cell->operands.reset();
  cell->reference.reset();
  if (!decided) {
    return WhileMeasuring(std::move(decided.error()), node.CellInWords(size_hint_bytes));
  }
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
    decided->winner.error().where = node.CellInWords(size_hint_bytes);
  }
  Report(*decided);
  ++cells_done_;
  return decided;
}

Result<DecidedCell> CellTiming::MeasureSteadily(TuneCell& cell, const Problem& problem) {
  const int64_t budget_ns = BudgetOfNextCellNs();
  const int64_t end_ns = now_ns_ + budget_ns;
  const auto share_before = cell.first_heat ? share_during_first_heats_ : std::nullopt;
  processors_.Begin();
  COTUNE_TRY(DecidedCell decided, MeasureOnce(cell, problem, budget_ns));
  if (!decided.winner) return decided;
  if (decided.cell.is_unsteady) {
    ++state_.outcome.unsteady_cells;  // the budget has cut it
    if (!has_short_samples_) decided.winner->why = WhyCutCellWins(decided, state_.settings);
    return decided;
  }
  if (!processors_.JudgesCells()) return decided;
  COTUNE_TRY(std::string reason, WhyUnsteady(decided, Label(cell) + " processors", share_before));
  if (reason.empty()) return decided;
  DropFailedCallers(cell, decided.cell);
  const bool has_budget = budget_ns == 0 || now_ns_ < end_ns;
  bool is_cut = false;
  if (has_budget && !cell.callers.empty()) {
    processors_.Restart();  // the load during the first measurement no longer counts
    COTUNE_TRY(decided, MeasureAgain(cell, problem, std::move(decided),
                                     budget_ns == 0 ? 0 : end_ns - now_ns_));
    if (!decided.winner) return decided;
    is_cut = decided.cell.is_unsteady;
    if (!is_cut) {
      COTUNE_TRY(reason, WhyUnsteady(decided, Label(cell) + " processors again", {}));
      if (reason.empty()) return decided;
    }
  }
  decided.cell.is_unsteady = true;
  WarnOfUnsteadyCell(cell.place.node->CellInWords(cell.place.hint_bytes), reason);
  decided = Decide(std::move(decided.cell), SelectionRules::Of(state_.settings));
  if (is_cut && decided.winner) decided.winner->why = WhyCutCellWins(decided, state_.settings);
  return decided;
}

Result<DecidedCell> CellTiming::MeasureOnce(TuneCell& cell, const Problem& problem,
                                            int64_t budget_ns) {
  // A cell of two heats shares its budget between them; 0: there is none.
  const auto end_ns = budget_ns == 0 ? std::nullopt : std::optional(now_ns_ + budget_ns);
  Result<DecidedCell> decided =
      HasTwoHeats(cell) ? RaceBothHeats(cell, problem, end_ns)
                        : Benchmark(cell, problem, Label(cell), Heat::kOnly, {}, budget_ns);
  if (!decided || !decided->winner || !has_short_samples_) return decided;
  decided->cell.is_unsteady = true;
  decided = Decide(std::move(decided->cell), SelectionRules::Of(state_.settings));
  if (decided->winner) decided->winner->why = WhyShortSamplesWin(*decided->winner);
  return decided;
}

std::vector<SlowChoice> CellTiming::SetSlowCallersAside(TuneCell& cell) const {
  if (!state_.settings.neighbour_pruning) return {};
  std::vector<SlowChoice> slow = cell.place.node->RefuseSlow(cell.place.hint_bytes);
  const auto races = [&](const std::unique_ptr<ChoiceCaller>& caller) {
    return !IsAmong(slow, caller->id());
  };
  const auto first_slow = std::stable_partition(cell.callers.begin(), cell.callers.end(), races);
  std::move(first_slow, cell.callers.end(), std::back_inserter(cell.slow_callers));
  cell.callers.erase(first_slow, cell.callers.end());
  return slow;
}

bool CellTiming::TakeSlowCallersBack(TuneCell& cell, std::span<const SlowChoice> slow) {
  const auto stays = [&](const std::unique_ptr<ChoiceCaller>& caller) {
    return !IsAmong(slow, caller->id());
  };
  const auto first =
      std::stable_partition(cell.slow_callers.begin(), cell.slow_callers.end(), stays);
  const bool has_some = first != cell.slow_callers.end();
  std::move(first, cell.slow_callers.end(), std::back_inserter(cell.callers));
  cell.slow_callers.erase(first, cell.slow_callers.end());
  return has_some;
}

Result<DecidedCell> CellTiming::MeasureWithSlowCallers(TuneCell& cell, const Problem& problem,
                                                       std::vector<SlowChoice>& slow,
                                                       DecidedCell first) {
  // An unsteady cell is measured again by the next tune.
  if (first.winner && (first.cell.is_unsteady || IsBudgetSpent())) return first;
  const std::vector<SlowChoice> to_race = ChoicesToRaceAfterAll(slow, first);
  if (!TakeSlowCallersBack(cell, to_race)) return first;
  const int32_t unsteady_cells = state_.outcome.unsteady_cells;
  COTUNE_TRY(DecidedCell joined, MeasureSlowCallers(cell, problem, first.cell));
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

Result<DecidedCell> CellTiming::MeasureSlowCallers(TuneCell& cell, const Problem& problem,
                                                   CellResult first) {
  DropFailedCallers(cell, first);
  cell.races_slow_callers = true;
  COTUNE_TRY(DecidedCell slow, MeasureSteadily(cell, problem));
  // The winner stays that of the second race: no choice that has failed before has a time.
  slow.cell = JoinHeats(std::move(first), std::move(slow.cell));
  return slow;
}

void CellTiming::DropFailedCallers(TuneCell& cell, const CellResult& result) {
  const auto has_failed = [&](const std::unique_ptr<ChoiceCaller>& caller) {
    return std::any_of(result.verdicts.begin(), result.verdicts.end(), [&](const Verdict& verdict) {
      const bool has_raced =
          verdict.outcome == Outcome::kTimed || verdict.outcome == Outcome::kOutpaced;
      return verdict.id == caller->id() && (!has_raced || verdict.wrong_elements > 0);
    });
  };
  std::erase_if(cell.callers, has_failed);
}

Result<DecidedCell> CellTiming::MeasureAgain(TuneCell& cell, const Problem& problem,
                                             DecidedCell first, int64_t budget_ns) {
  COTUNE_TRY(DecidedCell again,
             Benchmark(cell, problem, Label(cell) + " again", Heat::kOnly, {}, budget_ns));
  return Decide(JoinHeats(std::move(first.cell), std::move(again.cell)),
                SelectionRules::Of(state_.settings));
}

Result<std::string> CellTiming::WhyUnsteady(const DecidedCell& decided, std::string_view label,
                                            std::optional<double> share_before) {
  // GPUs measure by themselves: the processors matter to the host's part of a call only.
  if (start_mode_ != StartMode::kDevice) {
    COTUNE_TRY(const std::optional<double> now, processors_.ShareOfOtherPrograms(label, now_ns_));
    const std::optional<double> share = std::max(now, share_before);
    if (share > kForeignShareMax) {
      return fmt::format("other programs used {:.0f} % of the processors", 100 * *share);
    }
  }
  if (!HasWideInterval(decided.cell, *decided.winner)) return std::string();
  return fmt::format("the 99 % interval of {} is wider than {:.0f} % of its median",
                     decided.winner->id.text(), 100 * kSteadyWidth);
}

Status CellTiming::RaceFirstHeats() {
  std::vector<TuneCell*> cells;
  for (TuneCell& cell : cells_) {
    if (HasTwoHeats(cell)) cells.push_back(&cell);
  }
  // A cell alone has nothing to compile its combinations together with.
  if (cells.size() < 2) return {};
  processors_.Begin();
  uint64_t kept_bytes = 0;
  for (size_t i = 0; i < cells.size() && !IsBudgetSpent(); ++i) {
    // The heats that are left, one or two of each cell, share what is left of the budget.
    const auto heats_left = static_cast<int64_t>(cells_.size() + cells.size() - i);
    const bool has_budget = state_.settings.budget_ns > 0;
    const int64_t budget_ns = has_budget ? std::max<int64_t>(1, BudgetLeftNs() / heats_left) : 0;
    const Problem problem = cells[i]->place.problem();
    const ScopedSpan span(state_.parts.observer, SpanKind::kCell, ToText(problem),
                          ToText(problem.cls));
    if (Status raced = RaceFirstHeat(*cells[i], problem, budget_ns); !raced) {
      const CellPlace& place = cells[i]->place;
      return WhileMeasuring(std::move(raced.error()), place.node->CellInWords(place.hint_bytes));
    }
    KeepOrFreeOperands(*cells[i], kept_bytes);
  }
  if (processors_.JudgesCells() && start_mode_ != StartMode::kDevice) {
    COTUNE_TRY(share_during_first_heats_,
               processors_.ShareOfOtherPrograms("first heats processors", now_ns_));
  }
  if (IsBudgetSpent()) return {};
  const StageSpan stage(state_.parts.observer, Stage::kPrecompile);
  return CallCombinations(cells, "cells compiled");
}

Status CellTiming::RaceFirstHeat(TuneCell& cell, const Problem& problem, int64_t budget_ns) {
  COTUNE_TRY(DecidedCell decided,
             Benchmark(cell, problem, Label(cell), Heat::kFirstOfTwo, {}, budget_ns));
  cell.first_heat = FirstHeat{std::move(decided), has_only_qualified_, has_short_samples_};
  return {};
}

void CellTiming::KeepOrFreeOperands(TuneCell& cell, uint64_t& kept_bytes) const {
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

Result<DecidedCell> CellTiming::RaceBothHeats(TuneCell& cell, const Problem& problem,
                                              std::optional<int64_t> end_ns) {
  const bool is_alone = !cell.first_heat;
  if (is_alone) {
    const int64_t budget_ns = end_ns ? (*end_ns - now_ns_ + 1) / 2 : 0;
    COTUNE_RETURN_IF_ERROR(RaceFirstHeat(cell, problem, budget_ns));
  }
  FirstHeat& first = *cell.first_heat;
  has_short_samples_ = first.has_short_samples;
  // A first heat of short samples decides nothing, so that the second one may take more than the
  // share of the cell.
  const auto is_budget_spent = [&] {
    const bool has_decided = !first.has_short_samples;
    return IsBudgetSpent() || (has_decided && end_ns && now_ns_ >= *end_ns);
  };
  if (!first.decided.winner || is_budget_spent()) return std::move(first.decided);
  if (is_alone) {
    TuneCell* const only[] = {&cell};
    COTUNE_RETURN_IF_ERROR(CallCombinations(only, Label(cell) + " compiled"));
  }
  // The combinations were compiled within the budget of the cell.
  if (!first.has_second || cell.callers.empty() || is_budget_spent()) {
    return std::move(first.decided);
  }
  const Heat heat = first.has_only_qualified ? Heat::kSecondOfTwo : Heat::kOnly;
  COTUNE_TRY(DecidedCell second,
             Benchmark(cell, problem, Label(cell) + " combined", heat, first.decided.cell.verdicts,
                       end_ns ? std::max<int64_t>(1, *end_ns - now_ns_) : 0));
  // A cell has no winner where nothing of its second heat has a time: that of the first heat is
  // among what no longer runs.
  return Decide(JoinHeats(std::move(first.decided.cell), std::move(second.cell)),
                SelectionRules::Of(state_.settings));
}

Status CellTiming::CallCombinations(std::span<TuneCell* const> cells, const std::string& label) {
  TuneParts& parts = state_.parts;
  std::vector<std::vector<std::unique_ptr<ChoiceCaller>>> combined(cells.size());
  std::vector<ChoiceCaller*> to_compile;
  bool has_second = false;
  for (size_t i = 0; i < cells.size(); ++i) {
    const CellPlace& place = cells[i]->place;
    if (!cells[i]->first_heat || !cells[i]->first_heat->decided.winner) continue;
    FirstHeat& first = *cells[i]->first_heat;
    for (const Choice& choice :
         place.node->CombineFastest(place.hint_bytes, first.decided.cell.verdicts)) {
      auto caller = MakeCaller(parts.groups, place.node->program(), place.problem(), choice);
      if (!caller) continue;
      to_compile.push_back(caller->get());
      combined[i].push_back(std::move(*caller));
    }
    first.has_second = !combined[i].empty() || first.has_only_qualified;
    has_second = has_second || first.has_second;
  }
  if (!has_second) return {};
  // The plans of the first heat are still there, so that what they have compiled is found, unless a
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
    if (cells[i]->first_heat && cells[i]->first_heat->has_second) {
      ReplaceCallers(*cells[i], std::move(combined[i]));
    }
  }
  // The meeting has time of its own: a rank that compiles for all of the time above would come too
  // late for the others.
  return MeetAfterCompiling(
      label, DeadlineAfter(std::max(parts.clock.now_ns(), ready_by_ns), warm_timeout_ns));
}

void CellTiming::ReplaceCallers(TuneCell& cell,
                                std::vector<std::unique_ptr<ChoiceCaller>> combined) {
  const FirstHeat& first = *cell.first_heat;
  const Winner& winner = *first.decided.winner;
  std::erase_if(cell.callers, [&](const std::unique_ptr<ChoiceCaller>& caller) {
    const bool is_to_beat = caller->id() == winner.id || caller->id() == winner.fallback ||
                            (winner.best_unfused && caller->id() == winner.best_unfused->id);
    return !is_to_beat &&
           !(first.has_only_qualified && IsStillRacing(first.decided.cell, caller->id()));
  });
  std::move(combined.begin(), combined.end(), std::back_inserter(cell.callers));
}

Status CellTiming::MeetAfterCompiling(const std::string& label, int64_t deadline_ns) {
  TuneParts& parts = state_.parts;
  const Status own = parts.observer.StopRequested() ? Status(TuneInterrupted()) : Status{};
  COTUNE_TRY(const auto all, ExchangeRecords(parts.exchange, label,
                                             StepRecord<Done>::FromStatus(own), 0, deadline_ns));
  now_ns_ = all.elapsed_ns;
  if (all.SomeFailedWith(ErrorCode::kInterrupted)) return TuneInterrupted();
  return {};
}

Result<DecidedCell> CellTiming::Benchmark(TuneCell& cell, const Problem& problem, std::string label,
                                          Heat heat, std::span<const Verdict> earlier,
                                          int64_t budget_ns) {
  TuneParts& parts = state_.parts;
  const BenchmarkParts of_cell{
      .exchange = parts.exchange,
      .groups = parts.groups,
      .device = parts.device,
      .clock = parts.clock,
      .observer = parts.observer,
      .watchdog = watchdog_,
      .settings = state_.settings,
      .start_mode = start_mode_,
      .start_window_ns = state_.start_window_ns,
      .symmetric = region_,
      .reference = cell.reference,
      .reset_callers =
          [this](BackendMember& member) {
            for (TuneCell& each : cells_) {
              for (auto* callers : {&each.callers, &each.slow_callers}) {
                for (auto& caller : *callers) {
                  if (caller->Uses(member)) caller->Reset();
                }
              }
            }
          },
      .note_attempt =
          [&parts](const Problem& each, const ChoiceId* choice) {
            const bool is_writer = parts.exchange.rank() == 0 && parts.known != nullptr;
            if (is_writer) parts.known->NoteAttempt(each, choice);
          },
  };
  const int64_t total_budget_ns =
      state_.settings.budget_ns > 0 ? std::max<int64_t>(1, BudgetLeftNs()) : 0;
  CellBenchmark benchmark(of_cell, cell.callers, std::move(label), heat, earlier, budget_ns,
                          total_budget_ns);
  Result<DecidedCell> decided = benchmark.Run(cell.place.node->program(), problem, cell.operands);
  if (!decided) return decided;
  now_ns_ = benchmark.elapsed_ns();
  state_.start_window_ns = benchmark.start_window_ns();
  has_only_qualified_ = benchmark.has_only_qualified();
  has_short_samples_ = benchmark.has_short_samples();
  if (start_mode_ != decided->cell.start_mode) {
    WarnOfBusyProcessors(cell.place.node->CellInWords(cell.place.hint_bytes), decided->cell);
  }
  start_mode_ = decided->cell.start_mode;  // a window that failed once is not tried again
  return decided;
}

void CellTiming::WarnOfBusyProcessors(const std::string& where, const CellResult& cell) {
  TuneParts& parts = state_.parts;
  if (parts.exchange.rank() != 0 || state_.has_warned_of_late_ranks) return;
  state_.has_warned_of_late_ranks = true;
  const Error late{.code = ErrorCode::kEnvironment,
                   .what = fmt::format("ranks often started late, {} times in one cell, so that "
                                       "times from here on may be too high",
                                       cell.invalid_rounds),
                   .where = where,
                   .cause = "something else uses the processors",
                   .next_step = "tune again while the machine is idle",
                   .ranks = {}};
  EmitLine(parts.observer, Severity::kWarning, late.ToText());
}

void CellTiming::WarnOfUnsteadyCell(const std::string& where, const std::string& reason) {
  ++state_.outcome.unsteady_cells;
  // The end of the tune has their number.
  if (state_.parts.exchange.rank() != 0 || state_.outcome.unsteady_cells > 1) return;
  EmitLine(state_.parts.observer, Severity::kWarning,
           fmt::format("the times of {} were unsteady ({}), so that they do not show which choice "
                       "is faster",
                       where, reason));
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
