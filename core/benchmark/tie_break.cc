#include "core/benchmark/tie_break.h"

#include <algorithm>
#include <utility>

#include "core/benchmark/calibration.h"
#include "core/benchmark/choice_removal.h"
#include "core/benchmark/choice_runs.h"
#include "core/benchmark/race_loop.h"

namespace cotune {
namespace {

constexpr int32_t kOneCopy = 1;

}  // namespace

std::vector<RacingChoice> TieBreak::EntrantsOf(std::span<const RacingChoice> choices,
                                               const std::vector<size_t>& tied,
                                               const CellResult& cell) const {
  const SampleRepetitions repetitions(parts_.settings.SampleNs(problem_.cls.memory), kOneCopy,
                                      problem_.cls.memory);
  std::vector<RacingChoice> entrants;
  for (const size_t at : tied) {
    RacingChoice entrant{.caller = choices[at].caller,
                         .verdict = {.id = cell.verdicts[at].id},
                         .subject = choices[at].subject};
    entrant.call_ns = cell.verdicts[at].median_ns;
    entrant.verdict.repetitions = repetitions.CallsFor(entrant.call_ns);
    entrants.push_back(std::move(entrant));
  }
  return entrants;
}

Status TieBreak::Run(std::span<RacingChoice> choices, CellResult& cell) {
  // A removal below makes groups anew, and knows the timed calls of the entrants alone.
  for (RacingChoice& choice : choices) choice.timed.reset();
  const int64_t spent_ns = steps_.elapsed_ns() - begin_ns_;
  if (buffers_.copies() == kOneCopy || (budget_ns_ > 0 && spent_ns >= budget_ns_)) return {};
  const std::vector<size_t> tied = TiedChoices(cell, SelectionRules{parts_.settings.noise_percent});
  if (tied.empty()) return {};

  std::vector<RacingChoice> entrants = EntrantsOf(choices, tied, cell);
  ChoiceRuns runs(parts_, problem_, buffers_, steps_, kOneCopy);
  ChoiceRemoval removal(parts_, problem_, entrants);
  const SampleRepetitions repetitions(parts_.settings.SampleNs(problem_.cls.memory), kOneCopy,
                                      problem_.cls.memory);
  RaceLoop race(parts_, steps_, runs, removal, repetitions,
                budget_ns_ > 0 ? budget_ns_ - spent_ns : 0);
  if (Status raced = race.Run(entrants); !raced) return raced;
  for (size_t i = 0; i < tied.size(); ++i) {
    RacingChoice& choice = choices[tied[i]];
    Verdict& verdict = cell.verdicts[tied[i]];
    verdict.warm_median_ns = entrants[i].verdict.median_ns;
    if (!entrants[i].has_failed) continue;
    choice.has_failed = true;
    verdict.outcome = choice.verdict.outcome = entrants[i].verdict.outcome;
    verdict.reason = choice.verdict.reason =
        "with its buffers in the cache: " + entrants[i].verdict.reason;
    verdict.median_ns = verdict.warm_median_ns = 0;
  }
  return {};
}

}  // namespace cotune
