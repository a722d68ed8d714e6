#include "core/scheduler/cell_timing.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "core/base/check.h"
#include "core/base/counted.h"
#include "core/base/usable_processors.h"
#include "core/benchmark/cell_benchmark.h"
#include "core/choice/choice_lists.h"
#include "core/choice/precompile.h"
#include "core/ranks/step_record.h"
#include "core/scheduler/foreign_load.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// The times of processors move in steps of this length as a rule.
constexpr std::chrono::milliseconds kObservationPause{10};
// Times that show too little after 0.3 s, longer than any number of processors needs, do not
// advance: some sandboxes publish constant ones.
constexpr int kObservationPausesMax = 30;

// Returns whether the race of the cell has ended before the choice was eliminated.
bool IsStillRacing(const CellResult& cell, const ChoiceId& id) {
  return std::any_of(cell.verdicts.begin(), cell.verdicts.end(), [&](const Verdict& verdict) {
    return verdict.id == id && verdict.outcome == Outcome::kTimed && verdict.wrong_elements == 0;
  });
}

// Returns why a choice wins in a cell that has short samples alone.
std::string WhyShortSamplesWin(const Winner& winner) {
  return fmt::format(
      "{}, {:.1f} us: the budget ended the measurement after rounds of short samples, which do not "
      "show which choice is the fastest; the next tune measures this size again",
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

int64_t CellTiming::BudgetOfNextCellNs() const {
  if (state_.settings.budget_ns <= 0) return 0;
  const int64_t cells_left = static_cast<int64_t>(cells_.size()) - cells_done_;
  return std::max<int64_t>(1, BudgetLeftNs() / cells_left);
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
  std::vector<Refusal> slow = DropSlowCallers(*cell);
  Result<DecidedCell> decided = MeasureSteadily(*cell, problem);
  cell->operands.reset();
  COTUNE_RETURN_IF_ERROR(decided);
  cell->callers.clear();
  decided->cell.refusals = node.ListChoices(parts.groups, size_hint_bytes).refusals;
  std::move(slow.begin(), slow.end(), std::back_inserter(decided->cell.refusals));
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
  const bool is_judged = !state_.settings.keep_unsteady && state_.parts.processor_times != nullptr;
  if (is_judged) begins_.push_back(TimesNow());
  COTUNE_TRY(DecidedCell decided, MeasureOnce(cell, problem, budget_ns));
  if (!decided.winner) return decided;
  if (decided.cell.is_unsteady) {
    ++state_.outcome.unsteady_cells;  // the budget has cut it
    if (!has_short_samples_) decided.winner->why = WhyCutCellWins(decided, state_.settings);
    return decided;
  }
  if (!is_judged) return decided;
  const std::string label = fmt::format("cell {}", cells_done_);
  COTUNE_TRY(std::string reason, WhyUnsteady(decided, label + " processors"));
  if (reason.empty()) return decided;
  DropFailedCallers(cell, decided.cell);
  const bool has_budget = budget_ns == 0 || now_ns_ < end_ns;
  bool is_cut = false;
  if (has_budget && !cell.callers.empty()) {
    begins_ = {TimesNow()};  // the load during the first measurement no longer counts
    COTUNE_TRY(decided, MeasureAgain(cell, problem, std::move(decided),
                                     budget_ns == 0 ? 0 : end_ns - now_ns_));
    if (!decided.winner) return decided;
    is_cut = decided.cell.is_unsteady;
    if (!is_cut) {
      COTUNE_TRY(reason, WhyUnsteady(decided, label + " processors again"));
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
  const int64_t cell_end_ns = now_ns_ + budget_ns;
  const bool has_heats = cell.place.node->combinations_max(cell.place.hint_bytes) > 0;
  Result<DecidedCell> decided = Benchmark(cell, problem, fmt::format("cell {}", cells_done_),
                                          has_heats ? Heat::kFirstOfTwo : Heat::kOnly, {},
                                          has_heats ? (budget_ns + 1) / 2 : budget_ns);
  if (decided && has_heats) {
    const auto end_ns = budget_ns == 0 ? std::nullopt : std::optional(cell_end_ns);
    COTUNE_RETURN_IF_ERROR(RaceCombinations(cell, problem, end_ns, *decided));
  }
  if (!decided || !decided->winner || !has_short_samples_) return decided;
  decided->cell.is_unsteady = true;
  decided = Decide(std::move(decided->cell), SelectionRules::Of(state_.settings));
  if (decided->winner) decided->winner->why = WhyShortSamplesWin(*decided->winner);
  return decided;
}

std::vector<Refusal> CellTiming::DropSlowCallers(TuneCell& cell) const {
  if (!state_.settings.neighbour_pruning) return {};
  std::vector<Refusal> slow = cell.place.node->RefuseSlow(cell.place.hint_bytes);
  std::erase_if(cell.callers, [&](const std::unique_ptr<ChoiceCaller>& caller) {
    return std::any_of(slow.begin(), slow.end(), [&](const Refusal& refusal) {
      return refusal.choice == caller->id().text();
    });
  });
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
  COTUNE_TRY(DecidedCell again, Benchmark(cell, problem, fmt::format("cell {} again", cells_done_),
                                          Heat::kOnly, {}, budget_ns));
  return Decide(JoinHeats(std::move(first.cell), std::move(again.cell)),
                SelectionRules::Of(state_.settings));
}

ProcessorTimes CellTiming::TimesNow() const {
  const auto& read = state_.parts.processor_times;
  return read == nullptr ? ProcessorTimes{} : read().value_or(ProcessorTimes{});
}

Result<ProcessorUse> CellTiming::ObserveProcessors() {
  ProcessorUse use{.usable = UsableProcessors()};
  ProcessorTimes now = TimesNow();
  const auto is_long_ago = [&](const ProcessorTimes& times) {
    return IsObserved(use.usable, now.capacity_ns - times.capacity_ns);
  };
  for (int pauses = 0; state_.has_advancing_times && !is_long_ago(begins_.front()); ++pauses) {
    if (state_.parts.observer.StopRequested()) return TuneInterrupted();
    if (pauses == kObservationPausesMax) {
      state_.has_advancing_times = false;
      break;
    }
    std::this_thread::sleep_for(kObservationPause);
    now = TimesNow();
  }
  while (begins_.size() > 1 && is_long_ago(begins_[1])) begins_.pop_front();
  const ProcessorTimes& before = begins_.front();
  use.own_ns = now.own_ns - before.own_ns;
  use.busy_ns = now.busy_ns - before.busy_ns;
  use.capacity_ns = now.capacity_ns - before.capacity_ns;
  return use;
}

Result<std::string> CellTiming::WhyUnsteady(const DecidedCell& decided, std::string_view label) {
  // GPUs measure by themselves: the processors matter to the host's part of a call only.
  if (start_mode_ != StartMode::kDevice) {
    Result<ProcessorUse> use = ObserveProcessors();
    auto record = StepRecord<ProcessorUse>::FromStatus(use ? Status{} : Propagate(use));
    if (use) record.message = std::move(*use);
    COTUNE_TRY(const auto all, ExchangeRecords(state_.parts.exchange, std::string(label), record, 0,
                                               DeadlineAfter(state_.parts.clock.now_ns(),
                                                             state_.settings.warm_timeout_ns)));
    now_ns_ = all.elapsed_ns;
    if (all.SomeFailedWith(ErrorCode::kInterrupted)) return TuneInterrupted();
    if (std::optional<Error> failure = all.FirstFailure()) {
      return tl::make_unexpected(std::move(*failure));
    }
    std::vector<ProcessorUse> ranks;
    for (const auto& each : all.records) ranks.push_back(each.message);
    const std::optional<double> share = ForeignShare(ranks);
    if (share > kForeignShareMax) {
      return fmt::format("other programs used {:.0f} % of the processors", 100 * *share);
    }
  }
  if (!HasWideInterval(decided.cell, *decided.winner)) return std::string();
  return fmt::format("the 99 % interval of {} is wider than {:.0f} % of its median",
                     decided.winner->id.text(), 100 * kSteadyWidth);
}

Status CellTiming::RaceCombinations(TuneCell& cell, const Problem& problem,
                                    std::optional<int64_t> end_ns, DecidedCell& decided) {
  // A cell that is begun is measured well enough to be decided.
  const bool has_decided = !has_short_samples_;
  const auto is_budget_spent = [&] {
    return has_decided ? end_ns && now_ns_ >= *end_ns : IsBudgetSpent();
  };
  if (!decided.winner || is_budget_spent()) return {};
  COTUNE_TRY(const bool has_combinations, CallCombinations(cell, problem, decided));
  // The combinations were compiled within the budget of the cell.
  if (!has_combinations || cell.callers.empty() || is_budget_spent()) return {};
  COTUNE_TRY(
      DecidedCell second,
      Benchmark(cell, problem, fmt::format("cell {} combined", cells_done_),
                has_only_qualified_ ? Heat::kSecondOfTwo : Heat::kOnly, decided.cell.verdicts,
                end_ns ? std::max<int64_t>(1, *end_ns - now_ns_) : 0));
  // A cell has no winner where nothing of its second heat has a time: that of the first heat is
  // among what no longer runs.
  decided = Decide(JoinHeats(std::move(decided.cell), std::move(second.cell)),
                   SelectionRules::Of(state_.settings));
  return {};
}

Result<bool> CellTiming::CallCombinations(TuneCell& cell, const Problem& problem,
                                          const DecidedCell& first) {
  TuneParts& parts = state_.parts;
  const MultiTemplate& node = *cell.place.node;
  std::vector<std::unique_ptr<ChoiceCaller>> combined;
  std::vector<ChoiceCaller*> to_compile;
  for (const Choice& choice : node.CombineFastest(cell.place.hint_bytes, first.cell.verdicts)) {
    auto caller = MakeCaller(parts.groups, node.program(), problem, choice);
    if (!caller) continue;
    to_compile.push_back(caller->get());
    combined.push_back(std::move(*caller));
  }
  if (combined.empty() && !has_only_qualified_) return false;
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
    parts.watchdog->Keep(
        std::make_shared<std::vector<std::unique_ptr<ChoiceCaller>>>(std::move(combined)));
    return Propagate(ready);
  }
  std::erase_if(cell.callers, [&](const std::unique_ptr<ChoiceCaller>& caller) {
    const Winner& winner = *first.winner;
    const bool is_to_beat = caller->id() == winner.id || caller->id() == winner.fallback ||
                            (winner.best_unfused && caller->id() == winner.best_unfused->id);
    return !is_to_beat && !(has_only_qualified_ && IsStillRacing(first.cell, caller->id()));
  });
  std::move(combined.begin(), combined.end(), std::back_inserter(cell.callers));
  // The meeting has time of its own: a rank that compiles for all of the time above would come too
  // late for the others.
  COTUNE_RETURN_IF_ERROR(MeetAfterCompiling(
      DeadlineAfter(std::max(parts.clock.now_ns(), ready_by_ns), warm_timeout_ns)));
  return true;
}

Status CellTiming::MeetAfterCompiling(int64_t deadline_ns) {
  TuneParts& parts = state_.parts;
  const Status own = parts.observer.StopRequested() ? Status(TuneInterrupted()) : Status{};
  COTUNE_TRY(const auto all,
             ExchangeRecords(parts.exchange, fmt::format("cell {} compiled", cells_done_),
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
      .reset_callers =
          [this](BackendMember& member) {
            for (TuneCell& each : cells_) {
              for (auto& caller : each.callers) {
                if (caller->Uses(member)) caller->Reset();
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
    EmitLine(parts.observer, Severity::kWarning, decided.winner.error().ToText());
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
