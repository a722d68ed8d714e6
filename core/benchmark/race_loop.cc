#include "core/benchmark/race_loop.h"

#include <algorithm>
#include <iterator>
#include <numeric>

#include "core/benchmark/rank_spans.h"
#include "core/selection/select_winner.h"

namespace cotune {
namespace {

// For samples that no host disturbs: graphs behind a barrier of the devices. On 2 H200 the best of
// two in a row was at most 2.3 % over the median of all, of three 1.4 %, of four 0.4 % (428
// choices).
constexpr EarlyCut kCutsOnDevices[] = {{2, 1.25}, {3, 1.1}, {5, 1.05}};

// Qualifying has as many rounds as an interval needs. A user who wants few rounds gets none of it.
constexpr int32_t kStagesOfRounds = 3;

// Short samples save less than they cost if they have few choices to eliminate.
constexpr size_t kFewChoicesMax = 12;

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
    if (choices[i].verdict.id.has_host_keys()) race.Limit(i);
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
  if (has_rounds_for_both && choices > kFewChoicesMax) {
    rules.qualifying_rounds = rules.min_rounds;
    rules.only_qualifies = heat == Heat::kFirstOfTwo;
  }
  rules.indifference_percent = rules.noise_percent / 2;
  return rules;
}

Status RaceLoop::Run(std::span<RacingChoice> choices, const RaceRules& rules, int64_t budget_ns,
                     int64_t total_budget_ns) {
  Race race = MakeRace(choices, rules);
  if (race.is_qualifying()) repetitions_.Shorten(choices);
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
    if (is_all_spent || (has_qualified && rules.only_qualifies)) {
      race.Stop();
    } else if (has_qualified) {
      race.EndQualifying(repetitions_.Lengthen(choices, race));
    }
    const bool has_enough = race.counted_rounds() >= rules.min_rounds;
    if (is_spent && has_enough && !race.is_qualifying()) race.Stop();
    has_short_samples_ = race.is_qualifying() && repetitions_.HasShortSamples(choices, race);
    is_cut_short_ = is_all_spent && (!has_enough || has_short_samples_);
  }
  WriteTimes(race, choices);
  return {};
}

// Behind the round, so that no sample waits for a listener.
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

int64_t RaceLoop::StartDelayNs(const RacingChoice& choice) const {
  if (is_qualifying_) return 0;
  // A sample of several calls begins with one that is not timed, in front of the start.
  const bool has_untimed_call = choice.verdict.repetitions > 1;
  return window_.DelayNs(has_untimed_call ? choice.call_ns : 0);
}

Result<std::vector<int64_t>> RaceLoop::MeasureRound(std::span<RacingChoice> choices,
                                                    const std::vector<size_t>& order) {
  std::vector<int64_t> times_ns(order.size(), 0);
  // Positions in `order`. A sample that does not count is taken again behind the others, so that
  // short calls have as many samples as long ones where ranks often start late.
  std::vector<size_t> turns(order.size());
  std::iota(turns.begin(), turns.end(), size_t{0});
  StepRecord<TakenSample> record;
  int64_t planned_start_ns = 0;
  // Each step carries the sample before it, so that a round of n samples takes n + 1 steps.
  for (size_t at = 0; at <= turns.size(); ++at) {
    const bool is_last = at == turns.size();
    const RacingChoice* next = is_last ? nullptr : &choices[order[turns[at]]];
    Result<ExchangedRecords<TakenSample>> all =
        steps_.Exchange(is_last ? "round end" : next->caller->id().text(), record,
                        is_last ? 0 : StartDelayNs(*next));
    COTUNE_RETURN_IF_ERROR(all);
    if (at > 0 && !choices[order[turns[at - 1]]].has_failed) {
      const size_t turn = turns[at - 1];
      RacingChoice& before = choices[order[turn]];
      COTUNE_TRY(const int64_t time_ns, TakeSample(before, *all, planned_start_ns));
      times_ns[turn] = time_ns;
      const bool is_taken_again = time_ns == 0 && !before.has_failed;
      if (is_taken_again) turns.push_back(turn);
      if (is_last && is_taken_again) next = &before;
      // Making a group anew takes time, and the round's end plans no start: line up once more.
      if (next != nullptr && (before.has_failed || is_last)) {
        all = steps_.Exchange("again", StepRecord<TakenSample>{}, StartDelayNs(*next));
        COTUNE_RETURN_IF_ERROR(all);
      }
    }
    record = StepRecord<TakenSample>{};
    if (next == nullptr || next->has_failed) continue;
    planned_start_ns = all->start_elapsed_ns;
    RacingChoice& choice = choices[order[turns[at]]];
    record = RecordOf<TakenSample>(
        runs_.CallTimed(choice, choice.verdict.repetitions, planned_start_ns), runs_.SpanBeginNs());
  }
  return times_ns;
}

Result<int64_t> RaceLoop::TakeSample(RacingChoice& choice, const ExchangedRecords<TakenSample>& all,
                                     int64_t planned_start_ns) {
  if (const std::optional<Error> failure = all.FirstFailure()) {
    COTUNE_RETURN_IF_ERROR(removal_.RemoveFailed(choice, all, *failure));
    return 0;
  }
  const SampleSpan sample = SpanOverRanks(all);
  if (!window_.Accepts(sample, planned_start_ns)) return 0;
  choice.verdict.skews_ns.push_back(sample.skew_ns);
  return std::max<int64_t>(1, sample.span_ns / choice.verdict.repetitions);
}

}  // namespace cotune
