#include "core/selection/select_winner.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>

#include "core/base/check.h"
#include "core/base/counted.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// Fewest samples for which a median is trusted: 2 behind a device barrier, 5 on the host.
size_t TrustedSamples(const CellResult& cell) {
  return cell.start_mode == StartMode::kDevice ? 2 : 5;
}

double Microseconds(int64_t ns) { return static_cast<double>(ns) / 1000.0; }

// Time saved by `time_ns` as a share of `base_ns`, in percent.
double PercentFaster(int64_t time_ns, int64_t base_ns) {
  return 100.0 * static_cast<double>(base_ns - time_ns) / static_cast<double>(base_ns);
}

// "12.3 % faster than host/ring (41.2 us)". One that was outpaced early can have the smaller
// median.
std::string ComparedText(const Verdict& winner, std::string_view role, const Verdict& other) {
  const double percent = PercentFaster(winner.median_ns, other.median_ns);
  return fmt::format("{:.1f} % {} than {}{} ({:.1f} us{})", std::abs(percent),
                     percent < 0 ? "slower" : "faster", role, other.id.text(),
                     Microseconds(other.median_ns),
                     other.outcome == Outcome::kOutpaced ? ", outpaced" : "");
}

bool HasOutcome(const Verdict& verdict, Outcome outcome) {
  return verdict.outcome == outcome && verdict.has_time();
}

// Whether the choice counts at all: it has a time and did not fail afterwards.
bool HasRaced(const Verdict& verdict) {
  return HasOutcome(verdict, Outcome::kTimed) || HasOutcome(verdict, Outcome::kOutpaced);
}

bool IsFaster(const Verdict& a, const Verdict& b) {
  return a.median_ns != b.median_ns ? a.median_ns < b.median_ns : a.id < b.id;
}

// The fastest verdict that `eligible` accepts, or nullptr.
template <typename Eligible>
const Verdict* Fastest(const CellResult& cell, Eligible eligible) {
  const Verdict* fastest = nullptr;
  for (const Verdict& verdict : cell.verdicts) {
    if (eligible(verdict) && (fastest == nullptr || IsFaster(verdict, *fastest)))
      fastest = &verdict;
  }
  return fastest;
}

std::string IntervalText(const Verdict& verdict) {
  const std::string range = fmt::format("{:.1f}-{:.1f} us", Microseconds(verdict.interval_low_ns),
                                        Microseconds(verdict.interval_high_ns));
  if (verdict.samples_ns.size() >= 8) return "99 % interval " + range;
  return fmt::format("range of {} samples {}", verdict.samples_ns.size(), range);
}

std::string FailureText(const Verdict& verdict) {
  std::string text = OutcomeName(verdict.outcome);
  if (verdict.wrong_elements > 0)
    text += ", " + Counted(static_cast<int64_t>(verdict.wrong_elements), "wrong element");
  if (!verdict.reason.empty()) text += ", " + verdict.reason;
  return text;
}

bool IntervalsOverlap(const Verdict& a, const Verdict& b) {
  return a.interval_low_ns <= b.interval_high_ns && b.interval_low_ns <= a.interval_high_ns;
}

bool IsWithinNoise(int64_t slower_ns, int64_t faster_ns, double noise_percent) {
  return static_cast<double>(slower_ns - faster_ns) * 100.0 <=
         noise_percent * static_cast<double>(faster_ns);
}

std::string WhyDefaultKept(const Verdict& fallback, const Verdict& fastest, double noise_percent) {
  if (fallback.outcome == Outcome::kOutpaced) {
    return fmt::format(
        "the default, {:.1f} us: in its rounds faster than what is left, {} ({:.1f} us)",
        Microseconds(fallback.median_ns), fastest.id.text(), Microseconds(fastest.median_ns));
  }
  const std::string head = fmt::format(
      "the default, {:.1f} us: {} ({:.1f} us) is {:.1f} % faster, but ",
      Microseconds(fallback.median_ns), fastest.id.text(), Microseconds(fastest.median_ns),
      PercentFaster(fastest.median_ns, fallback.median_ns));
  if (IsWithinNoise(fallback.median_ns, fastest.median_ns, noise_percent)) {
    return head + fmt::format("that is inside the noise of {:g} %", noise_percent);
  }
  return head + fmt::format("their intervals overlap ({} against {})", IntervalText(fallback),
                            IntervalText(fastest));
}

// Returns the reason that counted where the times alone would have kept the default; "" where they
// say enough.
std::string WhyDefaultDropped(const Verdict& winner, const Verdict& fallback) {
  const bool looks_alike =
      IntervalsOverlap(winner, fallback) || fallback.median_ns <= winner.median_ns;
  if (fallback.outcome != Outcome::kOutpaced || !looks_alike) return "";
  return fmt::format(
      ", which the race dropped after {} samples, slower than the leader of its rounds "
      "beyond the noise",
      fallback.samples_ns.size());
}

// fastest: without its warm time; it ties with the winner when it is not that.
std::string WhyFastest(const CellResult& cell, const Verdict& winner, const Verdict& fastest,
                       const Verdict* fallback, const Verdict* runner_up) {
  const std::string interval = IntervalText(winner);
  if (fallback == &winner) {
    if (runner_up == nullptr) {
      return fmt::format("the default, and the only choice with a time: {:.1f} us; {}",
                         Microseconds(winner.median_ns), interval);
    }
    return fmt::format("the default, {:.1f} us, and {}; {}", Microseconds(winner.median_ns),
                       ComparedText(winner, "the next, ", *runner_up), interval);
  }
  if (fallback != nullptr) {
    return ComparedText(winner, "the default ", *fallback) + WhyDefaultDropped(winner, *fallback) +
           "; " + interval;
  }
  std::string text = fmt::format("{}, {:.1f} us; {}", &winner == &fastest ? "the fastest" : "tied",
                                 Microseconds(winner.median_ns), interval);
  const auto failed = std::find_if(cell.verdicts.begin(), cell.verdicts.end(),
                                   [](const Verdict& verdict) { return verdict.is_default; });
  if (failed == cell.verdicts.end()) return text + "; no backend names a default";
  return text + fmt::format("; the default {} failed: {}", failed->id.text(), FailureText(*failed));
}

tl::unexpected<Error> NoWinner(const CellResult& cell) {
  std::string fates;
  for (const Verdict& verdict : cell.verdicts) {
    if (!fates.empty()) fates += "; ";
    fates += fmt::format("{}: {}", verdict.id.text(), FailureText(verdict));
  }
  return Fail(ErrorCode::kEnvironment, "no choice could be timed", ToText(cell.problem),
              fates.empty() ? "no backend offers a choice" : fates,
              "see each choice's reason with 'cotune explain', or leave this size out");
}

// Smallest integer whose square is at least a * b.
uint64_t GeometricMeanUp(uint64_t a, uint64_t b) {
  using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  // The long double root is off by a few units at most; the two loops make it exact.
  auto root = static_cast<Wide>(std::sqrt(static_cast<long double>(a)) *
                                std::sqrt(static_cast<long double>(b)));
  while (root > 0 && (root - 1) * (root - 1) >= product) --root;
  while (root * root < product) ++root;
  return static_cast<uint64_t>(root);
}

int64_t MedianOfFirst(const Verdict& verdict, size_t samples) {
  const auto begin = verdict.samples_ns.begin();
  return MedianWithInterval({begin, begin + static_cast<std::ptrdiff_t>(samples)}).median_ns;
}

// The medians of two choices; where one was outpaced, those of the rounds that both took part in,
// since what slows later rounds slows only those that are still there. Near enough the same rounds:
// samples that did not count shift them by a few.
std::pair<int64_t, int64_t> ComparableMedians(const Verdict& a, const Verdict& b) {
  if (a.outcome != Outcome::kOutpaced && b.outcome != Outcome::kOutpaced) {
    return {a.median_ns, b.median_ns};
  }
  const size_t rounds = std::min(a.samples_ns.size(), b.samples_ns.size());
  return {MedianOfFirst(a, rounds), MedianOfFirst(b, rounds)};
}

// Returns whether the default wins although the other choice is faster. The race eliminated the
// default because it was slower than the leader by more than the noise. It is kept only if that
// leader failed later and the remaining choices were slower than the default in the same rounds.
bool IsDefaultKept(const Verdict& fallback, const Verdict& faster, const SelectionRules& rules) {
  const auto [default_ns, faster_ns] = ComparableMedians(fallback, faster);
  if (fallback.outcome == Outcome::kOutpaced) return default_ns < faster_ns;
  if (IsWithinNoise(default_ns, faster_ns, rules.noise_percent)) return true;
  return faster.outcome != Outcome::kOutpaced && IntervalsOverlap(fallback, faster);
}

// The time of a choice by that of the fastest one. An outpaced choice was slower than some other
// one in its rounds, so it is not faster than the fastest because that one had a bad moment there.
double TimeByFastest(const Verdict& verdict, const Verdict& fastest) {
  const auto [time_ns, fastest_ns] = ComparableMedians(verdict, fastest);
  // Samples are positive, but a file may say anything.
  const double ratio =
      static_cast<double>(time_ns) / static_cast<double>(std::max<int64_t>(1, fastest_ns));
  return verdict.outcome == Outcome::kOutpaced ? std::max(1.0, ratio) : ratio;
}

// Returns whether the time of the choice says enough for a tie. An outpaced one needs an interval:
// that it was dropped after two samples says that it is slow, but not by how much.
bool HasTimeForTie(const CellResult& cell, const Verdict& verdict) {
  if (!HasRaced(verdict)) return false;
  const size_t samples = verdict.samples_ns.size();
  if (verdict.outcome == Outcome::kOutpaced) return MedianIntervalRank(samples) > 0;
  return samples >= TrustedSamples(cell);
}

// The order of a cell's choices before ties are broken.
struct Standings {
  const Verdict* fastest = nullptr;   // nullptr: no choice has a time
  const Verdict* fallback = nullptr;  // the default that raced; nullptr: none
  bool default_kept = false;          // instead of the fastest
};

Standings StandingsOf(const CellResult& cell, const SelectionRules& rules) {
  Standings standings;
  standings.fastest =
      Fastest(cell, [](const Verdict& v) { return HasOutcome(v, Outcome::kTimed); });
  if (standings.fastest == nullptr) standings.fastest = Fastest(cell, HasRaced);
  if (standings.fastest == nullptr) return standings;
  const auto default_at =
      std::find_if(cell.verdicts.begin(), cell.verdicts.end(),
                   [](const Verdict& v) { return v.is_default && HasRaced(v); });
  if (default_at == cell.verdicts.end()) return standings;
  standings.fallback = &*default_at;
  standings.default_kept = standings.fallback != standings.fastest &&
                           IsDefaultKept(*standings.fallback, *standings.fastest, rules);
  return standings;
}

// Those of TiedChoices.
std::vector<const Verdict*> TiedVerdicts(const CellResult& cell, const Standings& standings,
                                         const SelectionRules& rules) {
  const Verdict* const fastest = standings.fastest;
  const Verdict* const fallback = standings.fallback;
  if (fastest == nullptr || fastest == fallback || standings.default_kept) return {};
  const double limit = 1 + rules.noise_percent / 100;
  std::vector<const Verdict*> tied = {fastest};
  for (const Verdict& verdict : cell.verdicts) {
    if (!HasTimeForTie(cell, verdict) || &verdict == fastest || &verdict == fallback) continue;
    const bool loses_to_default = fallback != nullptr && IsDefaultKept(*fallback, verdict, rules);
    if (TimeByFastest(verdict, *fastest) <= limit && !loses_to_default) tied.push_back(&verdict);
  }
  if (tied.size() < 2) return {};
  std::sort(tied.begin() + 1, tied.end(), [&](const Verdict* a, const Verdict* b) {
    const double a_time = TimeByFastest(*a, *fastest);
    const double b_time = TimeByFastest(*b, *fastest);
    return a_time != b_time ? a_time < b_time : a->id < b->id;
  });
  if (tied.size() > kTiedMax) tied.resize(kTiedMax);
  return tied;
}

// The winner among the choices that tie with the fastest one; the fastest one without warm times.
const Verdict* BreakTie(const CellResult& cell, const Standings& standings,
                        const SelectionRules& rules) {
  const Verdict* const fastest = standings.fastest;
  const Verdict* best = fastest;
  auto best_product = static_cast<double>(fastest->warm_median_ns);
  for (const Verdict* each : TiedVerdicts(cell, standings, rules)) {
    if (each->warm_median_ns <= 0) continue;
    const double product =
        TimeByFastest(*each, *fastest) * static_cast<double>(each->warm_median_ns);
    if (product >= best_product) continue;
    best = each;
    best_product = product;
  }
  return best;
}

// Returns why another choice wins than the fastest one; "" where that one wins.
std::string WhyTieBroken(const Verdict& winner, const Verdict& fastest) {
  if (&winner == &fastest) return "";
  return fmt::format(
      "; {} ({:.1f} us) ties with it, and takes {:.1f} us where this one takes {:.1f} us when the "
      "buffers are in the cache",
      fastest.id.text(), Microseconds(fastest.median_ns), Microseconds(fastest.warm_median_ns),
      Microseconds(winner.warm_median_ns));
}

}  // namespace

std::vector<size_t> TiedChoices(const CellResult& cell, const SelectionRules& rules) {
  std::vector<size_t> tied;
  for (const Verdict* each : TiedVerdicts(cell, StandingsOf(cell, rules), rules)) {
    tied.push_back(static_cast<size_t>(each - cell.verdicts.data()));
  }
  return tied;
}

Result<Winner> SelectWinner(const CellResult& cell, const SelectionRules& rules) {
  const Standings standings = StandingsOf(cell, rules);
  if (standings.fastest == nullptr) return NoWinner(cell);
  const Verdict* const fallback = standings.fallback;
  const Verdict* const chosen =
      standings.default_kept ? fallback : BreakTie(cell, standings, rules);
  const Verdict* runner_up = Fastest(cell, [&](const Verdict& v) {
    return HasRaced(v) && &v != chosen && v.samples_ns.size() >= TrustedSamples(cell);
  });
  if (runner_up == nullptr) {
    runner_up = Fastest(cell, [&](const Verdict& v) { return HasRaced(v) && &v != chosen; });
  }

  Winner winner{.id = chosen->id, .median_ns = chosen->median_ns};
  if (runner_up != nullptr) {
    winner.runner_up = runner_up->id;
    winner.runner_up_median_ns = runner_up->median_ns;
  }
  if (fallback != nullptr) {
    winner.fallback = fallback->id;
    winner.fallback_median_ns = fallback->median_ns;
  }
  winner.why = standings.default_kept
                   ? WhyDefaultKept(*fallback, *standings.fastest, rules.noise_percent)
                   : WhyFastest(cell, *chosen, *standings.fastest, fallback, runner_up) +
                         WhyTieBroken(*chosen, *standings.fastest);
  return winner;
}

CellResult JoinHeats(CellResult first, CellResult second) {
  CellResult joined = std::move(second);
  joined.refusals = std::move(first.refusals);
  joined.invalid_rounds += first.invalid_rounds;
  const size_t of_second = joined.verdicts.size();
  for (Verdict& verdict : first.verdicts) {
    const auto end = joined.verdicts.begin() + static_cast<std::ptrdiff_t>(of_second);
    const bool has_raced_again = std::any_of(
        joined.verdicts.begin(), end, [&](const Verdict& each) { return each.id == verdict.id; });
    if (has_raced_again) continue;
    if (HasRaced(verdict)) verdict.outcome = Outcome::kLostHeat;
    joined.verdicts.push_back(std::move(verdict));
  }
  return joined;
}

DecidedCell Decide(CellResult cell, const SelectionRules& rules) {
  Result<Winner> winner = SelectWinner(cell, rules);
  return {std::move(cell), std::move(winner)};
}

std::vector<SizeRange> MergeRanges(std::span<const std::pair<uint64_t, ChoiceId>> winners) {
  std::vector<SizeRange> ranges;
  for (size_t i = 0; i < winners.size(); ++i) {
    const auto& [bytes, choice] = winners[i];
    COTUNE_CHECK(i == 0 || winners[i - 1].first < bytes, "winners ascend by their bytes");
    if (!ranges.empty() && ranges.back().choice == choice) continue;
    uint64_t first_bytes = 0;
    if (!ranges.empty()) {
      const uint64_t below = winners[i - 1].first;
      first_bytes = std::max(below + 1, GeometricMeanUp(below, bytes));
      ranges.back().end_bytes = first_bytes;
    }
    ranges.push_back({first_bytes, UINT64_MAX, choice});
  }
  return ranges;
}

size_t MedianIntervalRank(size_t n) {
  // The interval x(k)..x(n+1-k) misses the median with probability 2 P(Bin(n, 1/2) <= k-1). Weights
  // are relative to the middle term, so that nothing underflows for large n.
  constexpr long double kTailMax = 0.005L;
  std::vector<long double> weights(n / 2 + 1, 1.0L);
  for (size_t k = n / 2; k > 0; --k) {
    weights[k - 1] = weights[k] * static_cast<long double>(k) / static_cast<long double>(n - k + 1);
  }
  long double total = 2 * std::accumulate(weights.begin(), weights.end(), 0.0L);
  if (n % 2 == 0) total -= weights.back();
  long double tail = 0;
  size_t rank = 0;
  while (rank < weights.size() && (tail += weights[rank]) <= kTailMax * total) ++rank;
  return rank;
}

MedianInterval MedianWithInterval(std::vector<int64_t> samples_ns) {
  if (samples_ns.empty()) return {};
  std::sort(samples_ns.begin(), samples_ns.end());
  const size_t n = samples_ns.size();
  const int64_t low_middle = samples_ns[(n - 1) / 2];
  const int64_t high_middle = samples_ns[n / 2];
  const size_t rank = std::max<size_t>(MedianIntervalRank(n), 1);
  // Without overflow, whatever the samples are.
  const uint64_t between = static_cast<uint64_t>(high_middle) - static_cast<uint64_t>(low_middle);
  return {low_middle + static_cast<int64_t>(between / 2), samples_ns[rank - 1],
          samples_ns[n - rank]};
}

}  // namespace cotune
