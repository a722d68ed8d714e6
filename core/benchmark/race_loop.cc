#include "core/benchmark/race_loop.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "core/backend/call_watchdog.h"
#include "core/benchmark/rank_spans.h"
#include "core/selection/select_winner.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// For samples that no host disturbs: graphs behind a barrier of the devices. On 2 H200 the best of
// two in a row was at most 2.3 % over the median of all, of three 1.4 %, of four 0.4 % (428
// choices).
constexpr EarlyCut kCutsOnDevices[] = {{2, 1.25}, {3, 1.1}, {5, 1.05}};

// These cuts apply to many choices on host memory. Two of three samples of a choice may be spikes
// there; then another one of those that are as fast wins.
constexpr EarlyCut kCutsOfMany[] = {{2, 1.5}, {3, 1.25}, {5, 1.15}};
// These apply to a second heat of full samples, in which most choices are those that short ones
// have left, and the others combine them.
constexpr EarlyCut kCutsOfQualified[] = {{2, 1.25}, {3, 1.15}, {5, 1.08}};

// A user who wants few rounds gets none of qualifying.
constexpr int32_t kStagesOfRounds = 3;

// The first of two heats. In 300 cells of tp_linear (16 idle cores), the fastest choice of the
// second heat was always among the 10 with the best samples of 5 rounds. With 4 rounds and second
// heats that end after 16 rounds, its winners took 1.03 times as long.
constexpr int32_t kQualifyingRoundsMax = 5;
constexpr size_t kQualifiedMax = 10;

// The limits of a second heat, after 3, 5, 8 and 16 rounds by default. In the same cells, limits of
// about this size cost 0.06 % of the winner's time in the mean, and save a quarter of the samples.
constexpr FieldLimit kLimitsOfQualified[] = {{0.375, 5}, {0.625, 3}, {1, 2}, {2, 1}};

// Short samples save less than they cost if they have few choices to eliminate.
constexpr size_t kFewChoicesMax = 12;

// A release of the ranks takes little beside samples that take so long together. On busy cores, a
// rank that runs for longer without waiting is preempted in the middle of a sample.
constexpr int64_t kBatchMaxNs = 2'000'000;

// Between the end of a sample by its expected time and the untimed call of the next.
constexpr int64_t kPauseNs = 5'000;

bool HasFailures(const ExchangedRecords<TakenSamples>& all) {
  return std::any_of(all.records.begin(), all.records.end(),
                     [](const auto& record) { return record.failure.has_value(); });
}

void WriteTimes(const Race& race, std::span<RacingChoice> choices) {
  for (size_t i = 0; i < choices.size(); ++i) {
    Verdict& verdict = choices[i].verdict;
    verdict.samples_ns = race.samples_ns(i);
    if (race.is_eliminated(i)) verdict.outcome = Outcome::kOutpaced;
    if (verdict.samples_ns.empty() || choices[i].has_failed) continue;
    const MedianInterval interval = MedianWithInterval(verdict.samples_ns);
    verdict.median_ns = interval.median_ns;
    verdict.interval_low_ns = interval.low_ns;
    verdict.interval_high_ns = interval.high_ns;
  }
}

Race MakeRace(std::span<const RacingChoice> choices, const RaceRules& rules) {
  size_t default_index = SIZE_MAX;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].verdict.is_default && !choices[i].has_failed) default_index = i;
  }
  Race race(choices.size(), default_index, rules);
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].has_failed) race.Disqualify(i);
    if (choices[i].verdict.id.has_host_keys()) race.SetChangesForm(i);
  }
  return race;
}

}  // namespace

RaceRules RulesOfRace(const BenchmarkParts& parts, size_t choices, Heat heat) {
  const TuningSettings& settings = parts.settings;
  RaceRules rules{settings.min_rounds, settings.collective_benchmark_nruns, settings.noise_percent};
  if (parts.device.aligns_ranks()) {
    rules.cuts.assign(std::begin(kCutsOnDevices), std::end(kCutsOnDevices));
    return rules;
  }
  const bool has_rounds_for_both = rules.max_rounds >= kStagesOfRounds * rules.min_rounds;
  if (heat == Heat::kSecondOfTwo) {
    rules.cuts.assign(std::begin(kCutsOfQualified), std::end(kCutsOfQualified));
    rules.limits.assign(std::begin(kLimitsOfQualified), std::end(kLimitsOfQualified));
    rules.limits_all_forms = true;
  } else if (has_rounds_for_both && choices > kFewChoicesMax) {
    rules.cuts.assign(std::begin(kCutsOfMany), std::end(kCutsOfMany));
    rules.qualifying_rounds = rules.min_rounds;
    if (heat == Heat::kFirstOfTwo) {
      rules.only_qualifies = true;
      rules.qualifying_rounds = std::min(rules.min_rounds, kQualifyingRoundsMax);
      rules.qualified_max = kQualifiedMax;
    }
  }
  rules.indifference = {{1, rules.noise_percent / 2}, {2, rules.noise_percent * 2}};
  rules.turns_by_default = 3;
  return rules;
}

Status RaceLoop::Run(std::span<RacingChoice> choices, const RaceRules& rules, int64_t budget_ns,
                     int64_t total_budget_ns) {
  Race race = MakeRace(choices, rules);
  fastest_ns_.assign(choices.size(), 0);
  if (race.is_qualifying()) {
    repetitions_.Shorten(choices);
    AddCalibrations(choices, race);
  }
  const int64_t begin_ns = steps_.elapsed_ns();
  for (std::vector<size_t> order = race.NextRound(); !order.empty(); order = race.NextRound()) {
    const StageSpan stage(parts_.observer, Stage::kBenchmark);
    is_qualifying_ = race.is_qualifying();
    COTUNE_TRY(std::vector<int64_t> times_ns, MeasureRound(choices, order));
    CountSamples(choices, order, times_ns);
    const int64_t elapsed_ns = steps_.elapsed_ns() - begin_ns;
    const bool is_all_spent = total_budget_ns > 0 && elapsed_ns >= total_budget_ns;
    const bool is_spent = is_all_spent || (budget_ns > 0 && elapsed_ns >= budget_ns);
    // Only where there are rounds enough to come.
    if (!is_spent && race.rounds() + rules.min_rounds < rules.max_rounds) {
      repetitions_.RemeasureUndersampled(order, times_ns, choices, race);
    }
    // First, so that nobody is eliminated for the times of a choice that failed.
    for (size_t i : order) {
      if (choices[i].has_failed) race.Disqualify(i);
    }
    race.AddRound(order, times_ns);
    const bool has_qualified = race.HasQualified();
    if (has_qualified) race.EliminateUnqualified();
    if (is_all_spent || (has_qualified && rules.only_qualifies)) {
      race.Stop();
    } else if (has_qualified) {
      race.EndQualifying(repetitions_.Lengthen(choices, race));
    }
    const bool has_enough = race.counted_rounds() >= rules.min_rounds;
    if (is_spent && has_enough && !race.is_qualifying()) race.Stop();
    has_short_samples_ =
        race.is_qualifying() && (!has_enough || repetitions_.HasShortSamples(choices, race));
    is_cut_short_ = is_all_spent && (!has_enough || has_short_samples_);
  }
  WriteTimes(race, choices);
  return {};
}

void RaceLoop::AddCalibrations(std::span<RacingChoice> choices, Race& race) {
  const std::vector<size_t> order = race.NextRound();
  const auto has_calibration = [&](size_t i) { return choices[i].warm_ns > 0; };
  if (std::none_of(order.begin(), order.end(), has_calibration)) return;
  std::vector<int64_t> times_ns;
  for (const size_t i : order) {
    times_ns.push_back(choices[i].warm_ns);  // 0 if there is none, as of a sample that is not valid
    if (!has_calibration(i)) continue;
    fastest_ns_[i] = choices[i].warm_ns;
    choices[i].verdict.skews_ns.push_back(choices[i].warm_skew_ns);
  }
  race.AddRound(order, times_ns);
}

// After the round, so that no sample waits for a listener.
void RaceLoop::CountSamples(std::span<const RacingChoice> choices, const std::vector<size_t>& order,
                            const std::vector<int64_t>& times_ns) {
  for (size_t turn = 0; turn < order.size(); ++turn) {
    if (times_ns[turn] <= 0) continue;
    const ChoiceCaller& caller = *choices[order[turn]].caller;
    parts_.observer.OnEvent({.type = EventType::kCounter,
                             .name = kSampleCounter,
                             .choice = caller.id().text(),
                             .value = times_ns[turn]});
  }
}

int64_t RaceLoop::CallNs(std::span<const RacingChoice> choices, size_t index) const {
  if (fastest_ns_[index] > 0) return fastest_ns_[index];
  return choices[index].call_ns > 0 ? choices[index].call_ns : choices[index].check_ns;
}

int64_t RaceLoop::UntimedNs(std::span<const RacingChoice> choices, size_t index) const {
  const RacingChoice& choice = choices[index];
  const bool has_one = choice.verdict.repetitions > 1 || choice.adds_untimed_call;
  return has_one ? CallNs(choices, index) : 0;
}

RaceLoop::Batch RaceLoop::NextBatch(std::span<const RacingChoice> choices,
                                    std::vector<Turn>& left) const {
  // The release alone lines up the ranks of long samples if there is no common start: a rank that
  // does not wait in its calls, as the root of a broadcast, would begin the next one early.
  const bool has_batches =
      !parts_.device.aligns_ranks() && (is_qualifying_ || window_.mode() == StartMode::kWindow);
  Batch batch;
  int64_t end_ns = 0;
  size_t taken = 0;
  for (; taken < left.size(); ++taken) {
    const size_t index = left[taken].choice;
    if (choices[index].has_failed) continue;
    const int64_t begins_ns = batch.empty() ? 0 : end_ns + kPauseNs + UntimedNs(choices, index);
    end_ns = begins_ns + choices[index].verdict.repetitions * CallNs(choices, index);
    const bool is_full = !has_batches || end_ns > kBatchMaxNs;
    if (!batch.empty() && is_full) break;
    batch.push_back({left[taken].at, index, begins_ns});
  }
  left.erase(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(taken));
  return batch;
}

Result<ExchangedRecords<TakenSamples>> RaceLoop::MeetBefore(
    const Batch& batch, std::span<const RacingChoice> choices,
    const StepRecord<TakenSamples>& record) {
  if (batch.empty()) return steps_.Exchange("round end", record);
  const size_t first = batch.front().choice;
  const std::string& name = choices[first].caller->id().text();
  return steps_.Exchange(
      batch.size() == 1 ? name : fmt::format("{} and {} more", name, batch.size() - 1), record,
      is_qualifying_ ? 0 : window_.DelayNs(UntimedNs(choices, first)));
}

Result<std::vector<int64_t>> RaceLoop::MeasureRound(std::span<RacingChoice> choices,
                                                    const std::vector<size_t>& order) {
  std::vector<int64_t> times_ns(order.size(), 0);
  std::vector<Turn> left;
  for (size_t at = 0; at < order.size(); ++at) left.push_back({at, order[at]});
  StepRecord<TakenSamples> record;
  Batch before;
  int64_t planned_start_ns = 0;
  // Each step carries the samples before it, so that a round of n batches takes n + 1 steps.
  for (;;) {
    Batch next = NextBatch(choices, left);
    COTUNE_TRY(ExchangedRecords<TakenSamples> all, MeetBefore(next, choices, record));
    if (!before.empty()) {
      COTUNE_TRY(const std::vector<Turn> again,
                 FinishBatch(choices, before, all, planned_start_ns, times_ns));
      left.insert(left.end(), again.begin(), again.end());
      const bool some_failed = HasFailures(all);
      // Making a group anew takes time, and the round's end plans no start: line up once more.
      if (some_failed || (next.empty() && !left.empty())) {
        left.insert(left.begin(), next.begin(), next.end());
        next = NextBatch(choices, left);
        if (!next.empty()) {
          COTUNE_TRY(all, MeetBefore(next, choices, StepRecord<TakenSamples>{}));
        }
      }
    }
    if (next.empty()) return times_ns;
    planned_start_ns = all.start_elapsed_ns;
    record = TakeBatch(choices, next, planned_start_ns);
    before = std::move(next);
  }
}

StepRecord<TakenSamples> RaceLoop::TakeBatch(std::span<RacingChoice> choices, const Batch& batch,
                                             int64_t planned_start_ns) {
  StepRecord<TakenSamples> record;
  // A choice that has missed its deadline is to blame if an abort after it hangs or crashes.
  std::optional<AbortedCall> aborting;
  for (const Turn& turn : batch) {
    RacingChoice& choice = choices[turn.choice];
    TakenSamples::Sample& sample = record.message.samples.emplace_back();
    if (record.failure) {
      choice.caller->Abort();
      sample.failure =
          FailureOf(Fail(ErrorCode::kAborted, "a sample before it failed on this rank"));
      continue;
    }
    const int64_t start_ns = planned_start_ns == 0 ? 0 : planned_start_ns + turn.begins_ns;
    StepRecord<TakenSample> taken = RecordOf<TakenSample>(
        runs_.CallTimed(choice, choice.verdict.repetitions, start_ns, choice.adds_untimed_call),
        runs_.SpanBeginNs());
    sample = {taken.message.span, taken.failure};
    record.failure = std::move(taken.failure);
    if (record.failure && record.failure->code == ErrorCode::kDeadline) {
      aborting.emplace(choice.subject);
    }
  }
  return record;
}

Result<std::vector<RaceLoop::Turn>> RaceLoop::FinishBatch(std::span<RacingChoice> choices,
                                                          const Batch& batch,
                                                          const ExchangedRecords<TakenSamples>& all,
                                                          int64_t planned_start_ns,
                                                          std::vector<int64_t>& times_ns) {
  std::vector<Turn> again;
  std::vector<FailedTurn> failed;
  bool is_interrupted = all.SomeFailedWith(ErrorCode::kInterrupted);
  for (size_t at = 0; at < batch.size(); ++at) {
    RacingChoice& choice = choices[batch[at].choice];
    const ExchangedRecords<TakenSample> of_ranks = SampleOfRanks(all, at);
    if (std::optional<Error> failure = of_ranks.FirstFailure()) {
      is_interrupted = is_interrupted || of_ranks.SomeFailedWith(ErrorCode::kInterrupted);
      failed.push_back({batch[at], std::move(*failure)});
      continue;
    }
    const SampleSpan sample = SpanOverRanks(of_ranks);
    const int64_t start_ns = planned_start_ns == 0 ? 0 : planned_start_ns + batch[at].begins_ns;
    if (!window_.Accepts(sample, start_ns)) {
      again.push_back(batch[at]);
      continue;
    }
    choice.verdict.skews_ns.push_back(sample.skew_ns);
    const int64_t time_ns = std::max<int64_t>(1, sample.span_ns / choice.verdict.repetitions);
    times_ns[batch[at].at] = time_ns;
    int64_t& fastest_ns = fastest_ns_[batch[at].choice];
    fastest_ns = fastest_ns == 0 ? time_ns : std::min(fastest_ns, time_ns);
  }
  if (failed.empty()) return again;
  // A rank may be ahead of another one that its abort frees from a sample before.
  const auto is_own_failure = [](const FailedTurn& each) {
    return each.failure.code != ErrorCode::kAborted;
  };
  auto at_fault = std::find_if(failed.begin(), failed.end(), is_own_failure);
  if (at_fault == failed.end()) at_fault = failed.begin();
  std::rotate(failed.begin(), at_fault, at_fault + 1);
  std::vector<RacingChoice*> failed_choices;
  for (const FailedTurn& each : failed) failed_choices.push_back(&choices[each.turn.choice]);
  COTUNE_RETURN_IF_ERROR(
      removal_.RemoveFirst(failed_choices, failed.front().failure, is_interrupted));
  for (size_t i = 1; i < failed.size(); ++i) again.push_back(failed[i].turn);
  return again;
}

}  // namespace cotune
