#include "core/selection/verdict_comparison.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace cotune {
namespace {

MedianInterval IntervalOfFirst(const Verdict& verdict, size_t samples) {
  const auto begin = verdict.samples_ns.begin();
  return MedianWithInterval({begin, begin + static_cast<std::ptrdiff_t>(samples)});
}

}  // namespace

bool HasOutcome(const Verdict& verdict, Outcome outcome) {
  return verdict.outcome == outcome && verdict.has_time();
}

bool HasRaced(const Verdict& verdict) {
  return HasOutcome(verdict, Outcome::kTimed) || HasOutcome(verdict, Outcome::kOutpaced);
}

bool IsFaster(const Verdict& a, const Verdict& b) {
  return a.median_ns != b.median_ns ? a.median_ns < b.median_ns : a.id < b.id;
}

std::pair<MedianInterval, MedianInterval> InCommonRounds(const Verdict& a, const Verdict& b) {
  const size_t rounds = std::min(a.samples_ns.size(), b.samples_ns.size());
  return {IntervalOfFirst(a, rounds), IntervalOfFirst(b, rounds)};
}

std::pair<int64_t, int64_t> ComparableMedians(const Verdict& a, const Verdict& b) {
  if (a.outcome != Outcome::kOutpaced && b.outcome != Outcome::kOutpaced) {
    return {a.median_ns, b.median_ns};
  }
  const auto [of_a, of_b] = InCommonRounds(a, b);
  return {of_a.median_ns, of_b.median_ns};
}

double TimeByFastest(const Verdict& verdict, const Verdict& fastest) {
  const auto [time_ns, fastest_ns] = ComparableMedians(verdict, fastest);
  // Samples are positive, but those of a file may be 0.
  const double ratio =
      static_cast<double>(time_ns) / static_cast<double>(std::max<int64_t>(1, fastest_ns));
  return verdict.outcome == Outcome::kOutpaced ? std::max(1.0, ratio) : ratio;
}

bool IsFasterInCommonRounds(const Verdict& a, const Verdict& b) {
  const auto [of_a, of_b] = InCommonRounds(a, b);
  if (of_a.high_ns < of_b.low_ns) return true;
  constexpr double kParts = 1e6;
  std::vector<int64_t> ratios;
  for (size_t i = 0; i < std::min(a.samples_ns.size(), b.samples_ns.size()); ++i) {
    const auto b_ns = static_cast<double>(std::max<int64_t>(1, b.samples_ns[i]));
    ratios.push_back(static_cast<int64_t>(static_cast<double>(a.samples_ns[i]) / b_ns * kParts));
  }
  return MedianIntervalRank(ratios.size()) > 0 &&
         static_cast<double>(MedianWithInterval(std::move(ratios)).high_ns) < kParts;
}

bool IntervalsOverlap(const Verdict& a, const Verdict& b) {
  return a.interval_low_ns <= b.interval_high_ns && b.interval_low_ns <= a.interval_high_ns;
}

bool IsIntervalWide(const Verdict& verdict) {
  if (MedianIntervalRank(verdict.samples_ns.size()) == 0) return false;
  const auto width_ns = static_cast<double>(verdict.interval_high_ns - verdict.interval_low_ns);
  return width_ns > kSteadyWidth * static_cast<double>(verdict.median_ns);
}

bool IsWithinNoise(int64_t slower_ns, int64_t faster_ns, double noise_percent) {
  return static_cast<double>(slower_ns - faster_ns) * 100.0 <=
         noise_percent * static_cast<double>(faster_ns);
}

}  // namespace cotune
