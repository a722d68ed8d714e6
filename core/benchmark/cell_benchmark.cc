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

// Checks of all but large sizes end within this time. A smaller budget counts as this much for
// them, so that it leaves no choice of a small size unchecked.
constexpr int64_t kChecksMinNs = 100'000'000;

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
  const int64_t check_begin_ns = steps_.elapsed_ns();
  COTUNE_RETURN_IF_ERROR(CheckAndCalibrate(problem, repetitions, check, calibration));
  const std::span<RacingChoice> racing = CheckedChoices();
  StartWindow window(parts_.start_mode, parts_.start_window_ns, parts_.exchange.world_size());
  const int64_t race_begin_ns = steps_.elapsed_ns();
  RaceLoop race(parts_, steps_, runs, removal, repetitions, window);
  const int64_t checks_ns = race_begin_ns - check_begin_ns;
  const int64_t total_left_ns =
      total_budget_ns_ > 0 ? std::max<int64_t>(1, total_budget_ns_ - checks_ns) : 0;
  COTUNE_RETURN_IF_ERROR(race.Run(racing, rules_, budget_ns_, total_left_ns));
  has_short_samples_ = race.has_short_samples();

  CellResult result;
  result.problem = problem;
  result.buffer_copies = buffers.copies();
  // Too few rounds are worth as little as times that vary much.
  result.is_unsteady = race.is_cut_short() || racing.size() < choices_.size();
  result.start_mode = window.mode();  // by which TieBreak knows how many samples count
  for (const RacingChoice& choice : racing) result.verdicts.push_back(choice.verdict);
  for (const RacingChoice& choice : std::span(choices_).subspan(racing.size())) {
    result.refusals.push_back(
        {choice.verdict.id.text(), "the budget of the tune ended before its results were checked"});
  }
  const bool budget_is_spent = budget_ns_ > 0 && steps_.elapsed_ns() - race_begin_ns >= budget_ns_;
  if (!budget_is_spent && TieBreak::IsOf(program, problem, buffers, parts_.device)) {
    TieBreak tie_break(parts_, problem, buffers, steps_, window);
    COTUNE_RETURN_IF_ERROR(tie_break.Run(racing, result));
  }
  result.start_mode = window.mode();
  result.invalid_rounds = window.invalid_samples();
  start_window_ns_ = window.window_ns();
  COTUNE_TRY(CellClocks clocks, ClockReport(parts_, steps_).Run(prepared_));
  result.sm_clock_mhz = clocks.sm_clock_mhz;
  result.throttle_reasons = std::move(clocks.throttle_reasons);
  WinnerRecheck recheck(check, SelectionRules::Of(parts_.settings));
  return recheck.Run(racing, std::move(result));
}

Status CellBenchmark::CheckAndCalibrate(const Problem& problem,
                                        const SampleRepetitions& repetitions,
                                        CorrectnessCheck& check, Calibration& calibration) {
  const int64_t begin_ns = steps_.elapsed_ns();
  // By the time of the job, so that all ranks leave out the same choices.
  const auto is_budget_spent = [&] {
    return total_budget_ns_ > 0 &&
           steps_.elapsed_ns() - begin_ns >= std::max(total_budget_ns_, kChecksMinNs);
  };
  for (RacingChoice& choice : choices_) {
    if (!choice.is_checked || choice.has_failed) continue;
    choice.verdict.repetitions = repetitions.CallsFor(choice.call_ns);
  }
  // The default and one choice that works are checked whatever the budget is: a cell of which no
  // choice works ends the tune with an error.
  const auto works = [](const RacingChoice& choice) {
    return choice.is_checked && !choice.has_failed;
  };
  for (RacingChoice& choice : choices_) {
    if (choice.has_failed || choice.is_checked) continue;
    if (is_budget_spent() && !choice.verdict.is_default) continue;
    COTUNE_RETURN_IF_ERROR(CheckAndCalibrate(choice, problem, check, calibration));
  }
  for (RacingChoice& choice : choices_) {
    if (choice.has_failed || choice.is_checked) continue;
    if (std::any_of(choices_.begin(), choices_.end(), works)) break;
    COTUNE_RETURN_IF_ERROR(CheckAndCalibrate(choice, problem, check, calibration));
  }
  if (parts_.note_attempt != nullptr) parts_.note_attempt(problem, nullptr);
  return {};
}

Status CellBenchmark::CheckAndCalibrate(RacingChoice& choice, const Problem& problem,
                                        CorrectnessCheck& check, Calibration& calibration) {
  if (parts_.note_attempt != nullptr) parts_.note_attempt(problem, &choice.caller->id());
  COTUNE_RETURN_IF_ERROR(check.Run(choice, CheckBy::kCall));
  choice.is_checked = true;
  return choice.has_failed ? Status{} : calibration.Run(choice);
}

std::span<RacingChoice> CellBenchmark::CheckedChoices() {
  const auto unchecked = std::stable_partition(
      choices_.begin(), choices_.end(),
      [](const RacingChoice& choice) { return choice.is_checked || choice.has_failed; });
  return std::span(choices_).first(static_cast<size_t>(unchecked - choices_.begin()));
}

}  // namespace cotune
