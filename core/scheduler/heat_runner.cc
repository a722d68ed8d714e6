#include "core/scheduler/heat_runner.h"

#include <algorithm>
#include <utility>

#include "core/benchmark/cell_benchmark.h"
#include "fmt/format.h"

namespace cotune {

std::string HeatRunner::Label(const TuneCell& cell) const {
  return fmt::format("cell {}{}", &cell - cells_.data(),
                     cell.races_slow_callers ? " slow choices" : "");
}

Result<HeatResult> HeatRunner::Run(TuneCell& cell, std::string label, Heat heat,
                                   std::span<const Verdict> earlier, int64_t budget_ns) {
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
  COTUNE_TRY(DecidedCell decided,
             benchmark.Run(cell.place.node->program(), cell.place.problem(), cell.operands));
  now_ns_ = benchmark.elapsed_ns();
  state_.start_window_ns = benchmark.start_window_ns();
  if (start_mode_ != decided.cell.start_mode) WarnOfBusyProcessors(cell.place, decided.cell);
  start_mode_ = decided.cell.start_mode;  // a window that failed once is not tried again
  return HeatResult{std::move(decided), benchmark.has_only_qualified(),
                    benchmark.has_short_samples()};
}

void HeatRunner::WarnOfBusyProcessors(const CellPlace& place, const CellResult& cell) {
  TuneParts& parts = state_.parts;
  if (parts.exchange.rank() != 0 || state_.has_warned_of_late_ranks) return;
  state_.has_warned_of_late_ranks = true;
  const Error late{.code = ErrorCode::kEnvironment,
                   .what = fmt::format("ranks often started late, {} times in one cell, so that "
                                       "times from here on may be too high",
                                       cell.invalid_rounds),
                   .where = place.InWords(),
                   .cause = "something else uses the processors",
                   .next_step = "tune again while the machine is idle",
                   .ranks = {}};
  EmitLine(parts.observer, Severity::kWarning, late.ToText());
}

}  // namespace cotune
