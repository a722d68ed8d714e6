#include "core/benchmark/cell_benchmark.h"

#include <algorithm>
#include <utility>

#include "core/benchmark/choice_removal.h"
#include "core/benchmark/choice_runs.h"
#include "core/benchmark/clock_report.h"
#include "core/benchmark/tie_break.h"
#include "core/benchmark/winner_recheck.h"

namespace cotune {
namespace {

// A choice that was right and has a time needs neither check nor calibration again.
void TakeOverCheck(const Verdict& earlier, RacingChoice& choice) {
  const bool has_raced =
      earlier.outcome == Outcome::kTimed || earlier.outcome == Outcome::kOutpaced;
  if (!has_raced || earlier.wrong_elements > 0 || earlier.median_ns <= 0) return;
  choice.is_checked = true;
  choice.check_ns = choice.call_ns = earlier.median_ns;
  choice.verdict.reason = earlier.reason;
}

}  // namespace

CellBenchmark::CellBenchmark(const BenchmarkParts& parts,
                             std::span<const std::unique_ptr<ChoiceCaller>> callers,
                             std::string label, Heat heat, std::span<const Verdict> earlier,
                             int64_t budget_ns, int64_t total_budget_ns)
    : parts_(parts),
      rules_(RulesOfRace(parts_, callers.size(), heat)),
      budget_ns_(budget_ns),
      total_budget_ns_(total_budget_ns),
      choices_(RacingChoicesOf(callers)),
      steps_(parts_, std::move(label)),
      start_window_ns_(parts.start_window_ns) {
  for (RacingChoice& choice : choices_) {
    const auto verdict = std::find_if(earlier.begin(), earlier.end(), [&](const Verdict& each) {
      return each.id == choice.verdict.id;
    });
    if (verdict != earlier.end()) TakeOverCheck(*verdict, choice);
  }
}

Result<DecidedCell> CellBenchmark::Run(const Program& program, const Problem& problem,
                                       std::unique_ptr<CellOperands>& operands) {
  Result<DecidedCell> decided = RunStages(program, problem, std::move(operands));
  const bool is_interrupted = !decided && decided.error().code == ErrorCode::kInterrupted;
  // A choice that was being launched is not to blame for the end of this tune.
  if (is_interrupted && parts_.note_attempt != nullptr) parts_.note_attempt(problem, nullptr);
  if (decided) {
    for (RacingChoice& choice : choices_) choice.timed.reset();
    operands = std::move(prepared_.buffers);
  }
  return decided;
}

Result<DecidedCell> CellBenchmark::RunStages(const Program& program, const Problem& problem,
                                             std::unique_ptr<CellOperands> operands) {
  Preparation preparation(parts_, program, problem, steps_, std::move(operands));
  COTUNE_TRY(PreparedCell prepared, preparation.Run(choices_));
  prepared_ = std::move(prepared);
  CellOperands& buffers = *prepared_.buffers;
  ChoiceRuns runs(parts_, problem, buffers, steps_, buffers.copies());
  ChoiceRemoval removal(parts_, problem, choices_);
  CorrectnessCheck check(parts_, steps_, buffers, runs, removal);
  const SampleRepetitions repetitions(parts_.settings.SampleNs(), buffers.copies(),
                                      problem.cls.memory);
  Calibration calibration(repetitions, steps_, runs, removal);
  COTUNE_RETURN_IF_ERROR(CheckAndCalibrate(problem, repetitions, check, calibration));
  StartWindow window(parts_.start_mode, parts_.start_window_ns, parts_.exchange.world_size());
  const int64_t race_begin_ns = steps_.elapsed_ns();
  RaceLoop race(parts_, steps_, runs, removal, repetitions, window);
  COTUNE_RETURN_IF_ERROR(race.Run(choices_, rules_, budget_ns_, total_budget_ns_));
  has_short_samples_ = race.has_short_samples();

  CellResult result;
  result.problem = problem;
  result.buffer_copies = buffers.copies();
  // Too few rounds are worth as little as times that vary much.
  result.is_unsteady = race.is_cut_short();
  result.start_mode = window.mode();  // by which TieBreak knows how many samples count
  for (const RacingChoice& choice : choices_) result.verdicts.push_back(choice.verdict);
  const bool budget_is_spent = budget_ns_ > 0 && steps_.elapsed_ns() - race_begin_ns >= budget_ns_;
  if (!budget_is_spent && TieBreak::IsOf(program, problem, buffers, parts_.device)) {
    TieBreak tie_break(parts_, problem, buffers, steps_, window);
    COTUNE_RETURN_IF_ERROR(tie_break.Run(choices_, result));
  }
  result.start_mode = window.mode();
  result.invalid_rounds = window.invalid_samples();
  start_window_ns_ = window.window_ns();
  COTUNE_TRY(CellClocks clocks, ClockReport(parts_, steps_).Run(prepared_));
  result.sm_clock_mhz = clocks.sm_clock_mhz;
  result.throttle_reasons = std::move(clocks.throttle_reasons);
  WinnerRecheck recheck(check, SelectionRules::Of(parts_.settings));
  return recheck.Run(choices_, std::move(result));
}

Status CellBenchmark::CheckAndCalibrate(const Problem& problem,
                                        const SampleRepetitions& repetitions,
                                        CorrectnessCheck& check, Calibration& calibration) {
  for (RacingChoice& choice : choices_) {
    if (choice.has_failed) continue;
    if (choice.is_checked) {
      choice.verdict.repetitions = repetitions.CallsFor(choice.call_ns);
      continue;
    }
    if (parts_.note_attempt != nullptr) parts_.note_attempt(problem, &choice.caller->id());
    if (Status checked = check.Run(choice, CheckBy::kCall); !checked) return checked;
    if (choice.has_failed) continue;
    if (Status calibrated = calibration.Run(choice); !calibrated) return calibrated;
  }
  if (parts_.note_attempt != nullptr) parts_.note_attempt(problem, nullptr);
  return {};
}

}  // namespace cotune
