#include "core/benchmark/calibration.h"

#include <algorithm>

#include "core/benchmark/rank_spans.h"
#include "core/benchmark/sample_size.h"

namespace cotune {
namespace {

constexpr int32_t kWarmCallsMax = 16;
constexpr int32_t kFewRepetitions = 16;
constexpr int32_t kShortParts = 4;
constexpr int32_t kShortCallsMin = 2;
constexpr int64_t kLongCallNs = 50'000;
// A choice with more samples has been measured well enough.
constexpr size_t kSamplesToClearMax = 3;

int64_t TimeOfCall(const RacingChoice& choice) {
  return choice.call_ns > 0 ? choice.call_ns : choice.check_ns;
}

// The time of a call in the samples, if there are any.
int64_t TimeOfCall(const RacingChoice& choice, const std::vector<int64_t>& samples_ns) {
  return samples_ns.empty() ? TimeOfCall(choice) : MedianWithInterval(samples_ns).median_ns;
}

}  // namespace

int32_t SampleRepetitions::CallsFor(int64_t call_ns) const {
  return CallsOfSample(sample_ns_, call_ns, copies_, memory_);
}

int32_t SampleRepetitions::ShortCallsFor(int64_t call_ns) const {
  const int32_t calls = CallsFor(call_ns);
  const int32_t calls_min = call_ns >= kLongCallNs ? 1 : kShortCallsMin;
  return std::max(calls / kShortParts, std::min(calls, calls_min));
}

bool SampleRepetitions::NeedsUntimedCall(int32_t repetitions, int64_t call_ns) const {
  return memory_ == MemoryKind::kHost && repetitions == 1 && CallsFor(call_ns) > 1;
}

void SampleRepetitions::Shorten(std::span<RacingChoice> choices) const {
  for (RacingChoice& choice : choices) {
    if (choice.has_failed) continue;
    const int64_t call_ns = TimeOfCall(choice);
    choice.verdict.repetitions = ShortCallsFor(call_ns);
    choice.adds_untimed_call = NeedsUntimedCall(choice.verdict.repetitions, call_ns);
  }
}

bool SampleRepetitions::HasShortSamples(std::span<const RacingChoice> choices,
                                        const Race& race) const {
  for (size_t i = 0; i < choices.size(); ++i) {
    if (!race.is_racing(i)) continue;
    const int32_t calls = CallsFor(TimeOfCall(choices[i], race.samples_ns(i)));
    if (calls > kShortCallsMin && calls >= 2 * choices[i].verdict.repetitions) return true;
  }
  return false;
}

bool SampleRepetitions::Lengthen(std::span<RacingChoice> choices, const Race& race) const {
  if (!HasShortSamples(choices, race)) return false;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (!race.is_racing(i)) continue;
    choices[i].call_ns = TimeOfCall(choices[i], race.samples_ns(i));
    choices[i].verdict.repetitions = CallsFor(choices[i].call_ns);
    choices[i].adds_untimed_call = false;
    choices[i].verdict.skews_ns.clear();
  }
  return true;
}

int32_t SampleRepetitions::WarmCalls(int64_t check_ns) const {
  if (check_ns >= sample_ns_ * kWarmCallsMax) return 0;
  if (memory_ == MemoryKind::kHost) return std::min(ShortCallsFor(check_ns), kWarmCallsMax);
  return static_cast<int32_t>(std::clamp<int64_t>(sample_ns_ / check_ns, 1, kWarmCallsMax));
}

bool SampleRepetitions::RaiseRepetitions(RacingChoice& choice, int64_t time_ns,
                                         bool is_short) const {
  int32_t& repetitions = choice.verdict.repetitions;
  const int64_t believed_ns = TimeOfCall(choice);
  const int32_t wanted = is_short ? ShortCallsFor(time_ns) : CallsFor(time_ns);
  // Far more than noise: a little less time can make twice the calls of one.
  const bool was_far_off = time_ns * 3 <= believed_ns * 2;
  if (!was_far_off || repetitions >= kFewRepetitions || wanted < 2 * repetitions) return false;
  repetitions = wanted;
  choice.adds_untimed_call = is_short && NeedsUntimedCall(wanted, time_ns);
  choice.call_ns = time_ns;
  choice.verdict.skews_ns.clear();
  return true;
}

void SampleRepetitions::RemeasureUndersampled(const std::vector<size_t>& order,
                                              std::vector<int64_t>& times_ns,
                                              std::span<RacingChoice> choices, Race& race) const {
  for (size_t turn = 0; turn < order.size(); ++turn) {
    const size_t index = order[turn];
    const bool is_early = race.samples_ns(index).size() < kSamplesToClearMax;
    if (!is_early || times_ns[turn] == 0) continue;
    if (!RaiseRepetitions(choices[index], times_ns[turn], race.is_qualifying())) continue;
    race.ClearSamples(index);
    times_ns[turn] = 0;
  }
}

Status Calibration::Run(RacingChoice& choice) {
  choice.verdict.repetitions = repetitions_.CallsFor(choice.check_ns);
  const int32_t warm = repetitions_.WarmCalls(choice.check_ns);
  if (warm == 0) return {};
  const bool adds_untimed_call = repetitions_.NeedsUntimedCall(warm, choice.check_ns);
  COTUNE_TRY(const auto all,
             steps_.Exchange(
                 "warm", RecordOf<WarmCalls>(runs_.CallTimed(choice, warm, 0, adds_untimed_call),
                                             runs_.SpanBeginNs())));
  if (const std::optional<Error> failure = all.FirstFailure()) {
    return removal_.RemoveFailed(choice, all, *failure);
  }
  choice.call_ns = std::max<int64_t>(1, LongestSpanNs(all) / warm);
  if (warm > 1 || adds_untimed_call) {
    const SampleSpan sample = SpanOverRanks(all);
    choice.warm_ns = std::max<int64_t>(1, sample.span_ns / warm);
    choice.warm_skew_ns = sample.skew_ns;
  }
  choice.verdict.repetitions = repetitions_.CallsFor(choice.call_ns);
  return {};
}

}  // namespace cotune
