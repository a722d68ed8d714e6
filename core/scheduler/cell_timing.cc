#include "core/scheduler/cell_timing.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/benchmark/cell_benchmark.h"
#include "core/choice/choice_lists.h"
#include "core/choice/precompile.h"
#include "fmt/format.h"

namespace cotune {

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
  Result<DecidedCell> decided = Benchmark(*cell, problem, fmt::format("cell {}", cells_done_));
  if (!decided) return decided;
  if (Status raced = RaceCombinations(*cell, problem, *decided); !raced) return Propagate(raced);
  cell->callers.clear();
  decided->cell.refusals = node.ListChoices(parts.groups, size_hint_bytes).refusals;
  ++state_.outcome.measured_cells;
  Report(*decided);
  ++cells_done_;
  return decided;
}

Status CellTiming::RaceCombinations(TuneCell& cell, const Problem& problem, DecidedCell& decided) {
  if (!decided.winner || IsBudgetSpent()) return {};
  TuneParts& parts = state_.parts;
  MultiTemplate& node = *cell.place.node;
  std::vector<Choice> combinations =
      BestCombinations(parts.groups, node.program(), problem, decided.cell.verdicts);
  const std::vector<Refusal>& refusals =
      node.ListChoices(parts.groups, cell.place.hint_bytes).refusals;
  std::erase_if(combinations, [&](const Choice& choice) {
    return std::any_of(refusals.begin(), refusals.end(),
                       [&](const Refusal& refusal) { return refusal.choice == choice.id.text(); });
  });
  if (combinations.empty()) return {};
  CallCombinations(cell, problem, *decided.winner, combinations);
  std::vector<ChoiceCaller*> callers;
  for (const auto& caller : cell.callers) callers.push_back(caller.get());
  // What they are made of has been compiled for the first heat.
  Status ready =
      PrecompileAll(callers, state_.settings.precompile_threads,
                    parts.clock.now_ns() + state_.settings.collective_autotune_timeout_ns,
                    {parts.exchange.rank(), parts.exchange.world_size()}, parts.watchdog,
                    parts.prepare_notes, [&parts] { return parts.observer.StopRequested(); });
  if (!ready) {
    // The thread whose call is stuck still uses them.
    parts.watchdog->Keep(
        std::make_shared<std::vector<std::unique_ptr<ChoiceCaller>>>(std::move(cell.callers)));
    return ready;
  }
  Result<DecidedCell> second =
      Benchmark(cell, problem, fmt::format("cell {} combined", cells_done_));
  if (!second) return Propagate(second);
  DecidedCell joined = Decide(JoinHeats(std::move(decided.cell), std::move(second->cell)),
                              SelectionRules{state_.settings.noise_percent});
  // The winner of the second heat was checked behind its timed calls.
  const bool is_checked =
      second->winner && joined.winner && second->winner->id == joined.winner->id;
  if (!is_checked) joined.winner = std::move(second->winner);
  decided = std::move(joined);
  return {};
}

void CellTiming::CallCombinations(TuneCell& cell, const Problem& problem, const Winner& to_beat,
                                  const std::vector<Choice>& combinations) {
  std::erase_if(cell.callers, [&](const std::unique_ptr<ChoiceCaller>& caller) {
    return caller->id() != to_beat.id && caller->id() != to_beat.fallback;
  });
  for (const Choice& choice : combinations) {
    auto caller = MakeCaller(state_.parts.groups, cell.place.node->program(), problem, choice);
    if (caller) cell.callers.push_back(std::move(*caller));
  }
}

Result<DecidedCell> CellTiming::Benchmark(TuneCell& cell, const Problem& problem,
                                          std::string label) {
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
  CellBenchmark benchmark(of_cell, cell.callers, std::move(label), BudgetOfNextCellNs());
  Result<DecidedCell> decided = benchmark.Run(cell.place.node->program(), problem);
  if (!decided) return decided;
  now_ns_ = benchmark.elapsed_ns();
  if (start_mode_ != decided->cell.start_mode) WarnOfBusyProcessors(decided->cell);
  start_mode_ = decided->cell.start_mode;  // a window that failed once is not tried again
  return decided;
}

void CellTiming::WarnOfBusyProcessors(const CellResult& cell) {
  TuneParts& parts = state_.parts;
  if (parts.exchange.rank() != 0 || state_.has_warned_of_late_ranks) return;
  state_.has_warned_of_late_ranks = true;
  const Error late{
      .code = ErrorCode::kEnvironment,
      .what = fmt::format("ranks often started late, {} times in one cell, so that "
                          "times from here on may be too high",
                          cell.invalid_rounds),
      .where = ToText(cell.problem),
      .cause = "something else uses the processors",
      .next_step = "tune again on an idle machine, with --force or into another database",
      .ranks = {}};
  EmitLine(parts.observer, Severity::kWarning, late.ToText());
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
