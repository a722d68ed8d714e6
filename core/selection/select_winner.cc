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

constexpr std::string_view kNoChoice = "no choice could be timed";
constexpr std::string_view kNoneOffered = "no backend offers a choice";

double Microseconds(int64_t ns) { return static_cast<double>(ns) / 1000.0; }

// Time saved by `time_ns` as a share of `base_ns`, in percent.
double PercentFaster(int64_t time_ns, int64_t base_ns) {
  return 100.0 * static_cast<double>(base_ns - time_ns) / static_cast<double>(base_ns);
}

bool HasOutcome(const Verdict& verdict, Outcome outcome) {
  return verdict.outcome == outcome && verdict.has_time();
}

// Whether the choice counts at all: it has a time and did not fail afterwards.
bool HasRaced(const Verdict& verdict) {
  return HasOutcome(verdict, Outcome::kTimed) || HasOutcome(verdict, Outcome::kOutpaced);
}

MedianInterval IntervalOfFirst(const Verdict& verdict, size_t samples) {
  const auto begin = verdict.samples_ns.begin();
  return MedianWithInterval({begin, begin + static_cast<std::ptrdiff_t>(samples)});
}

// The medians and intervals of two choices in the rounds that both took part in, because a slow
// round slows only the choices that are still in the race. Nearly the same rounds: samples that did
// not count shift them by a few.
std::pair<MedianInterval, MedianInterval> InCommonRounds(const Verdict& a, const Verdict& b) {
  const size_t rounds = std::min(a.samples_ns.size(), b.samples_ns.size());
  return {IntervalOfFirst(a, rounds), IntervalOfFirst(b, rounds)};
}

// The medians of two choices; if one was eliminated, those of their common rounds.
std::pair<int64_t, int64_t> ComparableMedians(const Verdict& a, const Verdict& b) {
  if (a.outcome != Outcome::kOutpaced && b.outcome != Outcome::kOutpaced) {
    return {a.median_ns, b.median_ns};
  }
  const auto [of_a, of_b] = InCommonRounds(a, b);
  return {of_a.median_ns, of_b.median_ns};
}

// "12.3 % faster than the next, host/ring (41.2 us)". The times are those of the rounds that both
// choices took part in, so that the sentence agrees with the race, which compared these.
std::string ComparedText(const Verdict& winner, std::string_view role, const Verdict& other) {
  const auto [winner_ns, other_ns] = ComparableMedians(winner, other);
  const double percent = PercentFaster(winner_ns, other_ns);
  const std::string name =
      fmt::format("{}{} ({:.1f} us{})", role, other.id.text(), Microseconds(other_ns),
                  other.outcome == Outcome::kOutpaced ? ", eliminated early" : "");
  if (percent >= 0.05) return fmt::format("{:.1f} % faster than {}", percent, name);
  return "as fast as " + name;
}

bool IsFaster(const Verdict& a, const Verdict& b) {
  return a.median_ns != b.median_ns ? a.median_ns < b.median_ns : a.id < b.id;
}

using Verdicts = std::vector<const Verdict*>;

// The verdicts of a cell by the class of their choices.
struct VerdictClasses {
  Verdicts unfused;
  Verdicts fused;
};

VerdictClasses ClassesOf(const CellResult& cell) {
  VerdictClasses classes;
  for (const Verdict& verdict : cell.verdicts) {
    (verdict.id.has_host_keys() ? classes.fused : classes.unfused).push_back(&verdict);
  }
  return classes;
}

Verdicts AllOf(const CellResult& cell) {
  Verdicts all;
  for (const Verdict& verdict : cell.verdicts) all.push_back(&verdict);
  return all;
}

// The fastest verdict that `eligible` accepts, or nullptr.
template <typename Eligible>
const Verdict* Fastest(const Verdicts& verdicts, Eligible eligible) {
  const Verdict* fastest = nullptr;
  for (const Verdict* verdict : verdicts) {
    if (eligible(*verdict) && (fastest == nullptr || IsFaster(*verdict, *fastest)))
      fastest = verdict;
  }
  return fastest;
}

// The fastest verdict that was timed to the end; if there is none, the fastest eliminated one.
const Verdict* FastestThatRaced(const Verdicts& verdicts) {
  const Verdict* const timed =
      Fastest(verdicts, [](const Verdict& v) { return HasOutcome(v, Outcome::kTimed); });
  return timed != nullptr ? timed : Fastest(verdicts, HasRaced);
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

// An interval of 99 % needs eight samples; fewer prove nothing about steadiness.
bool IsIntervalWide(const Verdict& verdict) {
  if (MedianIntervalRank(verdict.samples_ns.size()) == 0) return false;
  const auto width_ns = static_cast<double>(verdict.interval_high_ns - verdict.interval_low_ns);
  return width_ns > kSteadyWidth * static_cast<double>(verdict.median_ns);
}

bool IsWithinNoise(int64_t slower_ns, int64_t faster_ns, double noise_percent) {
  return static_cast<double>(slower_ns - faster_ns) * 100.0 <=
         noise_percent * static_cast<double>(faster_ns);
}

// Returns whether a choice that was faster than the eliminated default in their common rounds
// failed later, so that it may be the one for which the race eliminated the default.
bool HasFasterOneFailed(const CellResult& cell, const Verdict& fallback) {
  return std::any_of(cell.verdicts.begin(), cell.verdicts.end(), [&](const Verdict& verdict) {
    const bool has_failed = !HasRaced(verdict) && verdict.outcome != Outcome::kLostHeat;
    if (!has_failed || verdict.samples_ns.empty()) return false;
    const auto [failed_ns, default_ns] = InCommonRounds(verdict, fallback);
    return failed_ns.median_ns < default_ns.median_ns;
  });
}

std::string WhyEliminatedDefaultKept(const CellResult& cell, const Verdict& fallback,
                                     const Verdict& fastest, double noise_percent) {
  const auto [default_ns, fastest_ns] = ComparableMedians(fallback, fastest);
  const std::string eliminated =
      fmt::format("the default, {:.1f} us, which the race eliminated after {}: ",
                  Microseconds(fallback.median_ns),
                  Counted(static_cast<int64_t>(fallback.samples_ns.size()), "round"));
  const std::string rival =
      fmt::format("{} ({:.1f} us{})", fastest.id.text(), Microseconds(fastest.median_ns),
                  fastest.outcome == Outcome::kOutpaced ? ", eliminated early" : "");
  if (HasFasterOneFailed(cell, fallback)) {
    return eliminated + fmt::format(
                            "a choice that was faster failed later, and {}, which is left, "
                            "did not beat it in the rounds of both",
                            rival);
  }
  if (fastest_ns >= default_ns) {
    return eliminated + rival + " was not faster in the rounds of both";
  }
  if (IsWithinNoise(default_ns, fastest_ns, noise_percent)) {
    return eliminated + rival +
           fmt::format(
               " was faster in the rounds of both, but inside the "
               "noise of {:g} %",
               noise_percent);
  }
  return eliminated + rival +
         " was faster in the rounds of both, but their intervals do not show it";
}

std::string WhyDefaultKept(const CellResult& cell, const Verdict& fallback, const Verdict& fastest,
                           double noise_percent) {
  if (fallback.outcome == Outcome::kOutpaced) {
    return WhyEliminatedDefaultKept(cell, fallback, fastest, noise_percent);
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

// Returns how the race ended for the default; "" if it raced to the end.
std::string WhyDefaultDropped(const Verdict& fallback) {
  if (fallback.outcome != Outcome::kOutpaced) return "";
  return fmt::format(", which the race eliminated after {} rounds", fallback.samples_ns.size());
}

// fastest: without its warm time; it ties with the winner when it is not that. is_of_all: no fused
// choice was faster.
std::string WhyFastest(const CellResult& cell, const Verdict& winner, const Verdict& fastest,
                       const Verdict* fallback, const Verdict* runner_up, bool is_of_all) {
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
    return ComparedText(winner, "the default ", *fallback) + WhyDefaultDropped(*fallback) + "; " +
           interval;
  }
  const std::string_view role = is_of_all ? "the fastest" : "the fastest unfused choice";
  std::string text = fmt::format("{}, {:.1f} us; {}", &winner == &fastest ? role : "tied",
                                 Microseconds(winner.median_ns), interval);
  const auto failed = std::find_if(cell.verdicts.begin(), cell.verdicts.end(),
                                   [](const Verdict& verdict) { return verdict.is_default; });
  if (failed == cell.verdicts.end()) return text + "; no backend names a default";
  return text + fmt::format("; the default {} failed: {}", failed->id.text(), FailureText(*failed));
}

// Returns why no backend offers a choice. A refusal of a form or region concerns one way to run a
// program among others, and is named only if there is no refusal of a backend.
std::string WhyNoneOffered(std::span<const Refusal> refusals) {
  const auto concerns_form = [](const Refusal& refusal) {
    return refusal.choice.find("fuse=") != std::string::npos ||
           refusal.choice.find("via=") != std::string::npos;
  };
  const bool has_others = !std::all_of(refusals.begin(), refusals.end(), concerns_form);
  std::string reasons;
  for (const Refusal& refusal : refusals) {
    if (has_others && concerns_form(refusal)) continue;
    if (!reasons.empty()) reasons += "; ";
    reasons += fmt::format("{}: {}", refusal.choice, refusal.reason);
  }
  return std::string(kNoneOffered) + (reasons.empty() ? "" : " (" + reasons + ")");
}

tl::unexpected<Error> NoWinner(const CellResult& cell) {
  std::string fates;
  for (const Verdict& verdict : cell.verdicts) {
    if (!fates.empty()) fates += "; ";
    fates += fmt::format("{}: {}", verdict.id.text(), FailureText(verdict));
  }
  return Fail(ErrorCode::kEnvironment, std::string(kNoChoice), ToText(cell.problem),
              fates.empty() ? WhyNoneOffered(cell.refusals) : fates,
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

// Returns whether the 99 % intervals of the common rounds show that `a` is faster: those of the two
// medians lie apart, or that of the ratio of both times of a round lies below 1, because noise that
// slows a whole round widens the intervals of the medians only.
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

// Returns whether the default, which the race eliminated, wins although the other choice is faster.
// It was slower than the leader by more than the noise. A choice that raced to the end was never
// shown to be slower than that leader, so that the medians of the common rounds decide, unless the
// leader failed later: then, and for a choice that was eliminated as well, the intervals must show
// that it is faster.
bool IsEliminatedDefaultKept(const CellResult& cell, const Verdict& fallback, const Verdict& faster,
                             const SelectionRules& rules) {
  if (IsFasterInCommonRounds(faster, fallback)) return false;
  if (faster.outcome == Outcome::kOutpaced || HasFasterOneFailed(cell, fallback)) return true;
  const auto [default_ns, faster_ns] = ComparableMedians(fallback, faster);
  return IsWithinNoise(default_ns, faster_ns, rules.noise_percent);
}

// Returns whether the default wins although the other choice is faster. Another choice replaces
// the default only if it is faster by more than the noise, and if the 99 % intervals of both, from
// the same rounds, do not overlap.
bool IsDefaultKept(const CellResult& cell, const Verdict& fallback, const Verdict& faster,
                   const SelectionRules& rules) {
  if (fallback.outcome == Outcome::kOutpaced) {
    return IsEliminatedDefaultKept(cell, fallback, faster, rules);
  }
  const auto [default_ns, faster_ns] = ComparableMedians(fallback, faster);
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

// The least gain of a fused choice over an unfused one, in percent.
double LeastFusedGain(const SelectionRules& rules) {
  return std::max(rules.noise_percent, 100 * (rules.fusion_speedup_threshold - 1));
}

// Returns whether the fused choice is so much faster than the unfused one that it may win. An
// eliminated one was slower than some other choice, so it is not taken for one that was not.
bool IsWorthFusing(const Verdict& fused, const Verdict& unfused, const SelectionRules& rules) {
  if (fused.outcome == Outcome::kOutpaced && unfused.outcome == Outcome::kTimed) return false;
  const auto [fused_ns, unfused_ns] = ComparableMedians(fused, unfused);
  return !IsWithinNoise(unfused_ns, fused_ns, LeastFusedGain(rules));
}

// The class of a cell's choices that has the winner, and the order of its choices before ties are
// broken.
struct Standings {
  Verdicts of_class;
  const Verdict* fastest = nullptr;   // in the class; nullptr: no choice has a time
  const Verdict* fallback = nullptr;  // the unfused default, if it raced; nullptr: none
  bool default_kept = false;          // instead of the fastest
  // The fastest unfused choice if a fused one wins, and the fastest fused one if it does not.
  const Verdict* best_unfused = nullptr;
  const Verdict* rejected_fused = nullptr;
  // The unfused choice that fused ones are compared with: it runs if none of them wins.
  const Verdict* unfused_rival = nullptr;
  // The fastest of the choices that beat the default; nullptr: none does, or there is no default.
  const Verdict* beats_default = nullptr;
};

// Returns the fastest of the verdicts that beats the default, as far as they raced: one that was
// eliminated does so only if none raced to the end.
const Verdict* FastestThatBeats(const CellResult& cell, const Verdicts& verdicts,
                                const Verdict& fallback, const SelectionRules& rules) {
  const Verdict* const best = FastestThatRaced(verdicts);
  return Fastest(verdicts, [&](const Verdict& verdict) {
    if (&verdict == &fallback || !HasOutcome(verdict, best->outcome)) return false;
    const bool is_worth = !verdict.id.has_host_keys() || IsWorthFusing(verdict, fallback, rules);
    return is_worth && !IsDefaultKept(cell, fallback, verdict, rules);
  });
}

// Returns the standings of the unfused choices alone.
Standings UnfusedStandings(const CellResult& cell, const Verdicts& unfused,
                           const SelectionRules& rules) {
  Standings standings{.of_class = unfused, .fastest = FastestThatRaced(unfused)};
  standings.unfused_rival = standings.fastest;
  const auto default_at = std::find_if(unfused.begin(), unfused.end(), [](const Verdict* verdict) {
    return verdict->is_default && HasRaced(*verdict);
  });
  if (default_at == unfused.end()) return standings;
  standings.fallback = *default_at;
  if (standings.fallback == standings.fastest) return standings;
  if (!cell.is_unsteady) {
    standings.beats_default = FastestThatBeats(cell, unfused, *standings.fallback, rules);
  }
  standings.default_kept = standings.beats_default == nullptr;
  if (standings.default_kept) standings.unfused_rival = standings.fallback;
  return standings;
}

// Returns whether the unfused choice, which does not beat the default, raced to the end and is at
// least as fast as the fused one.
bool IsAsFastAsFused(const Verdict& unfused, const Verdict& fused) {
  return unfused.outcome == Outcome::kTimed && unfused.median_ns <= fused.median_ns;
}

Standings StandingsOf(const CellResult& cell, const SelectionRules& rules) {
  VerdictClasses classes = ClassesOf(cell);
  Standings standings = UnfusedStandings(cell, classes.unfused, rules);
  const Verdict* const fused = FastestThatRaced(classes.fused);
  const Verdict* const unfused = standings.fastest;
  standings.rejected_fused = fused;
  if (fused == nullptr || (cell.is_unsteady && unfused != nullptr)) return standings;
  const bool is_default_next =
      standings.fallback != nullptr && standings.unfused_rival == standings.fallback;
  if (is_default_next) {
    const bool is_late =
        unfused->outcome == Outcome::kTimed && fused->outcome == Outcome::kOutpaced;
    if (is_late) return standings;
    standings.beats_default = FastestThatBeats(cell, classes.fused, *standings.fallback, rules);
    if (standings.beats_default == nullptr) return standings;
    standings.default_kept = false;
    if (unfused != standings.fallback && IsAsFastAsFused(*unfused, *fused)) {
      standings.unfused_rival = unfused;
      return standings;
    }
  } else if (unfused != nullptr && !IsWorthFusing(*fused, *unfused, rules)) {
    return standings;
  }
  standings.best_unfused = unfused;
  standings.rejected_fused = nullptr;
  standings.fastest = fused;
  standings.of_class = std::move(classes.fused);
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
  for (const Verdict* verdict : standings.of_class) {
    if (!HasTimeForTie(cell, *verdict) || verdict == fastest || verdict == fallback) continue;
    const bool loses_to_default =
        fallback != nullptr && IsDefaultKept(cell, *fallback, *verdict, rules);
    const bool loses_to_unfused = standings.best_unfused != nullptr &&
                                  !IsWorthFusing(*verdict, *standings.unfused_rival, rules);
    if (loses_to_default || loses_to_unfused) continue;
    if (TimeByFastest(*verdict, *fastest) <= limit) tied.push_back(verdict);
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

// Choices that can stand in for the winner: those timed to the end first, because the time of an
// eliminated one may be of a few lucky rounds.
std::vector<ChoiceId> NextBest(const CellResult& cell, const Winner& winner) {
  std::vector<const Verdict*> raced;
  for (const Verdict& verdict : cell.verdicts) {
    const bool is_other = verdict.id != winner.id && verdict.id != winner.fallback;
    if (is_other && HasRaced(verdict)) raced.push_back(&verdict);
  }
  std::sort(raced.begin(), raced.end(), [](const Verdict* a, const Verdict* b) {
    if (a->outcome != b->outcome) return a->outcome == Outcome::kTimed;
    return IsFaster(*a, *b);
  });
  // A call that refuses one fused choice may refuse all of them.
  const auto unfused = std::find_if(raced.begin(), raced.end(), [](const Verdict* verdict) {
    return !verdict->id.has_host_keys();
  });
  if (unfused - raced.begin() >= static_cast<std::ptrdiff_t>(kNextBestMax) &&
      unfused != raced.end()) {
    raced[kNextBestMax - 1] = *unfused;
  }
  if (raced.size() > kNextBestMax) raced.resize(kNextBestMax);
  std::vector<ChoiceId> ids;
  for (const Verdict* verdict : raced) ids.push_back(verdict->id);
  return ids;
}

// Returns by which rule the fastest fused choice does not win; "" if it was not faster than the
// winner.
std::string WhyNotFused(const Verdict& winner, const Standings& standings,
                        const SelectionRules& rules) {
  if (standings.rejected_fused == nullptr) return "";
  const Verdict& fused = *standings.rejected_fused;
  if (fused.outcome == Outcome::kOutpaced && winner.outcome == Outcome::kTimed) return "";
  const auto [fused_ns, winner_ns] = ComparableMedians(fused, winner);
  if (fused_ns >= winner_ns) return "";
  const std::string head =
      fmt::format("; {} ({:.1f} us) was faster, but ", fused.id.text(), Microseconds(fused_ns));
  if (IsWorthFusing(fused, *standings.unfused_rival, rules)) {
    return head + fmt::format("the intervals do not show that it beats the default {}",
                              standings.fallback->id.text());
  }
  if (LeastFusedGain(rules) > rules.noise_percent) {
    return head + fmt::format("by less than fusion_speedup_threshold ({:g})",
                              rules.fusion_speedup_threshold);
  }
  return head + fmt::format("inside the noise of {:g} %", rules.noise_percent);
}

// Returns the comparison of a fused winner with the fastest unfused choice; "" if the sentence has
// it already, because that choice is the default.
std::string WhyFusedWins(const Verdict& winner, const Standings& standings) {
  const Verdict* const unfused = standings.best_unfused;
  if (unfused == nullptr || unfused == standings.fallback) return "";
  const bool is_compared = unfused == standings.unfused_rival;
  return "; " + ComparedText(winner, "the fastest unfused choice, ", *unfused) +
         (is_compared ? "" : ", which would not replace the default");
}

// Returns why the fastest choice wins although it does not beat the default by itself; "" if it
// does, and if there is no default.
std::string WhyDefaultBeaten(const CellResult& cell, const Standings& standings,
                             const SelectionRules& rules) {
  const Verdict* const other = standings.beats_default;
  if (other == nullptr || other == standings.fastest) return "";
  if (!IsDefaultKept(cell, *standings.fallback, *standings.fastest, rules)) return "";
  return fmt::format("; by itself it would not replace the default, which {} ({:.1f} us) beats",
                     other->id.text(), Microseconds(other->median_ns));
}

std::string WhyUnsteadyWins(const Verdict& chosen) {
  const std::string role = chosen.is_default ? "the default" : "the fastest, without a default";
  if (MedianIntervalRank(chosen.samples_ns.size()) == 0) {
    return fmt::format(
        "{}, {:.1f} us: the budget ended the measurement after {}, which do not show which choice "
        "is the fastest; the next tune measures this size again",
        role, Microseconds(chosen.median_ns),
        Counted(static_cast<int64_t>(chosen.samples_ns.size()), "round"));
  }
  return fmt::format(
      "{}, {:.1f} us: the times were unsteady ({}), so that they do not show which choice is the "
      "fastest; the next tune measures this size again",
      role, Microseconds(chosen.median_ns),
      IsIntervalWide(chosen) ? IntervalText(chosen) : "other programs used the processors");
}

// The fastest of the verdicts beside the chosen one; of those with enough samples for a time, if
// there are any. nullptr: no other one raced.
const Verdict* RunnerUp(const CellResult& cell, const Verdicts& verdicts, const Verdict* chosen) {
  const Verdict* const trusted = Fastest(verdicts, [&](const Verdict& v) {
    return HasRaced(v) && &v != chosen && v.samples_ns.size() >= TrustedSamples(cell);
  });
  if (trusted != nullptr) return trusted;
  return Fastest(verdicts, [&](const Verdict& v) { return HasRaced(v) && &v != chosen; });
}

std::string Why(const CellResult& cell, const Verdict& chosen, const Standings& standings,
                const SelectionRules& rules) {
  if (cell.is_unsteady) return WhyUnsteadyWins(chosen);
  const Verdict* const fallback = standings.fallback;
  const std::string why_not_fused = WhyNotFused(chosen, standings, rules);
  if (standings.default_kept) {
    return WhyDefaultKept(cell, *fallback, *standings.fastest, rules.noise_percent) + why_not_fused;
  }
  // The next one is of the same class if a faster choice of the other one does not win.
  const bool is_of_all = why_not_fused.empty();
  const Verdict* const next = RunnerUp(cell, is_of_all ? AllOf(cell) : standings.of_class, &chosen);
  return WhyFastest(cell, chosen, *standings.fastest, fallback, next, is_of_all) +
         WhyTieBroken(chosen, *standings.fastest) + WhyDefaultBeaten(cell, standings, rules) +
         WhyFusedWins(chosen, standings) + why_not_fused;
}

}  // namespace

bool IsRefusalText(std::string_view error_text) {
  return error_text.starts_with(kNoChoice) &&
         error_text.find(fmt::format(": {}", kNoneOffered)) != std::string_view::npos;
}

bool HasWideInterval(const CellResult& cell, const Winner& winner) {
  return std::any_of(cell.verdicts.begin(), cell.verdicts.end(), [&](const Verdict& verdict) {
    return verdict.id == winner.id && IsIntervalWide(verdict);
  });
}

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
  const Verdict* const runner_up = RunnerUp(cell, AllOf(cell), chosen);

  Winner winner{.id = chosen->id, .median_ns = chosen->median_ns};
  if (runner_up != nullptr) {
    winner.runner_up = runner_up->id;
    winner.runner_up_median_ns = runner_up->median_ns;
  }
  if (fallback != nullptr) {
    winner.fallback = fallback->id;
    winner.fallback_median_ns = fallback->median_ns;
  }
  winner.next_best = NextBest(cell, winner);
  winner.best_unfused = BestUnfused(cell, winner.id);
  winner.why = Why(cell, *chosen, standings, rules);
  return winner;
}

std::optional<TimedChoice> BestUnfused(const CellResult& cell, const ChoiceId& winner) {
  if (!winner.has_host_keys()) return std::nullopt;
  const Verdict* const fastest = FastestThatRaced(ClassesOf(cell).unfused);
  if (fastest == nullptr) return std::nullopt;
  return TimedChoice{fastest->id, fastest->median_ns};
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
