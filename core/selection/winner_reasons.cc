#include "core/selection/winner_reasons.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/counted.h"
#include "core/selection/verdict_comparison.h"
#include "fmt/format.h"

namespace cotune {
namespace {

double Microseconds(int64_t ns) { return static_cast<double>(ns) / 1000.0; }

// Time saved by `time_ns` as a share of `base_ns`, in percent.
double PercentFaster(int64_t time_ns, int64_t base_ns) {
  return 100.0 * static_cast<double>(base_ns - time_ns) / static_cast<double>(base_ns);
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

// Returns why another choice wins than the fastest one; "" if that one wins.
std::string WhyTieBroken(const Verdict& winner, const Verdict& fastest) {
  if (&winner == &fastest) return "";
  return fmt::format(
      "; {} ({:.1f} us) ties with it, and takes {:.1f} us where this one takes {:.1f} us when the "
      "buffers are in the cache",
      fastest.id.text(), Microseconds(fastest.median_ns), Microseconds(fastest.warm_median_ns),
      Microseconds(winner.warm_median_ns));
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
  return "no backend offers a choice" + (reasons.empty() ? "" : " (" + reasons + ")");
}

}  // namespace

std::string WhyWins(const CellResult& cell, const Verdict& chosen, const Standings& standings,
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

tl::unexpected<Error> NoWinner(const CellResult& cell) {
  std::string fates;
  for (const Verdict& verdict : cell.verdicts) {
    if (!fates.empty()) fates += "; ";
    fates += fmt::format("{}: {}", verdict.id.text(), FailureText(verdict));
  }
  return Fail(ErrorCode::kEnvironment, "no choice could be timed", ToText(cell.problem),
              fates.empty() ? WhyNoneOffered(cell.refusals) : fates,
              "leave this size out, or add a backend that can run it");
}

}  // namespace cotune
