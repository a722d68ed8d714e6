#include "core/selection/select_winner.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "core/selection/standings.h"
#include "core/selection/verdict_comparison.h"
#include "core/selection/winner_reasons.h"

namespace cotune {
namespace {

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

}  // namespace

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
  winner.why = WhyWins(cell, *chosen, standings, rules);
  return winner;
}

std::vector<size_t> TiedChoices(const CellResult& cell, const SelectionRules& rules) {
  std::vector<size_t> tied;
  for (const Verdict* each : TiedVerdicts(cell, StandingsOf(cell, rules), rules)) {
    tied.push_back(static_cast<size_t>(each - cell.verdicts.data()));
  }
  return tied;
}

bool HasWideInterval(const CellResult& cell, const Winner& winner) {
  return std::any_of(cell.verdicts.begin(), cell.verdicts.end(), [&](const Verdict& verdict) {
    return verdict.id == winner.id && IsIntervalWide(verdict);
  });
}

std::optional<TimedChoice> BestUnfused(const CellResult& cell, const ChoiceId& winner) {
  if (!winner.has_host_keys()) return std::nullopt;
  const Verdict* const fastest = FastestThatRaced(ClassesOf(cell).unfused);
  if (fastest == nullptr) return std::nullopt;
  return TimedChoice{fastest->id, fastest->median_ns};
}

CellResult JoinHeats(CellResult first, CellResult second) {
  CellResult joined = std::move(second);
  joined.refusals.insert(joined.refusals.begin(), std::make_move_iterator(first.refusals.begin()),
                         std::make_move_iterator(first.refusals.end()));
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

}  // namespace cotune
