#include "core/selection/standings.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "core/selection/verdict_comparison.h"

namespace cotune {
namespace {

// Fewest samples for which a median is trusted: 2 after a device barrier, 5 on the host.
size_t TrustedSamples(const CellResult& cell) {
  return cell.start_mode == StartMode::kDevice ? 2 : 5;
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

}  // namespace

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

const Verdict* FastestThatRaced(const Verdicts& verdicts) {
  const Verdict* const timed =
      Fastest(verdicts, [](const Verdict& v) { return HasOutcome(v, Outcome::kTimed); });
  return timed != nullptr ? timed : Fastest(verdicts, HasRaced);
}

bool HasFasterOneFailed(const CellResult& cell, const Verdict& fallback) {
  return std::any_of(cell.verdicts.begin(), cell.verdicts.end(), [&](const Verdict& verdict) {
    const bool has_failed = !HasRaced(verdict) && verdict.outcome != Outcome::kLostHeat;
    if (!has_failed || verdict.samples_ns.empty()) return false;
    const auto [failed_ns, default_ns] = InCommonRounds(verdict, fallback);
    return failed_ns.median_ns < default_ns.median_ns;
  });
}

namespace {

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

}  // namespace

bool IsDefaultKept(const CellResult& cell, const Verdict& fallback, const Verdict& faster,
                   const SelectionRules& rules) {
  if (fallback.outcome == Outcome::kOutpaced) {
    return IsEliminatedDefaultKept(cell, fallback, faster, rules);
  }
  const auto [default_ns, faster_ns] = ComparableMedians(fallback, faster);
  if (IsWithinNoise(default_ns, faster_ns, rules.noise_percent)) return true;
  return faster.outcome != Outcome::kOutpaced && IntervalsOverlap(fallback, faster);
}

double LeastFusedGain(const SelectionRules& rules) {
  return std::max(rules.noise_percent, 100 * (rules.fusion_speedup_threshold - 1));
}

bool IsWorthFusing(const Verdict& fused, const Verdict& unfused, const SelectionRules& rules) {
  if (fused.outcome == Outcome::kOutpaced && unfused.outcome == Outcome::kTimed) return false;
  const auto [fused_ns, unfused_ns] = ComparableMedians(fused, unfused);
  return !IsWithinNoise(unfused_ns, fused_ns, LeastFusedGain(rules));
}

namespace {

// Returns whether the time of the choice is good enough for a tie. An outpaced one needs an
// interval: two samples show that it is slow, but not by how much.
bool HasTimeForTie(const CellResult& cell, const Verdict& verdict) {
  if (!HasRaced(verdict)) return false;
  const size_t samples = verdict.samples_ns.size();
  if (verdict.outcome == Outcome::kOutpaced) return MedianIntervalRank(samples) > 0;
  return samples >= TrustedSamples(cell);
}

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

}  // namespace

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

const Verdict* RunnerUp(const CellResult& cell, const Verdicts& verdicts, const Verdict* chosen) {
  const Verdict* const trusted = Fastest(verdicts, [&](const Verdict& v) {
    return HasRaced(v) && &v != chosen && v.samples_ns.size() >= TrustedSamples(cell);
  });
  if (trusted != nullptr) return trusted;
  return Fastest(verdicts, [&](const Verdict& v) { return HasRaced(v) && &v != chosen; });
}

}  // namespace cotune
