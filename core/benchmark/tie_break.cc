#include "core/benchmark/tie_break.h"

#include <utility>

#include "core/benchmark/choice_removal.h"
#include "core/benchmark/choice_runs.h"
#include "core/benchmark/race_loop.h"

namespace cotune {
namespace {

constexpr int32_t kOneCopy = 1;

}  // namespace

bool TieBreak::IsOf(const Program& program, const Problem& problem, const CellOperands& buffers,
                    const Device& device) {
  return buffers.copies() > kOneCopy &&
         CellOperands::FitCache(program, problem, device.cache_bytes());
}

std::vector<RacingChoice> TieBreak::Entrants(std::span<const RacingChoice> choices,
                                             const std::vector<size_t>& tied,
                                             const CellResult& cell,
                                             const SampleRepetitions& repetitions) {
  std::vector<RacingChoice> entrants;
  for (const size_t at : tied) {
    const Verdict& verdict = cell.verdicts[at];
    RacingChoice& entrant = entrants.emplace_back(RacingChoice{.caller = choices[at].caller,
                                                               .verdict = {.id = verdict.id},
                                                               .subject = choices[at].subject});
    entrant.call_ns = verdict.median_ns;
    entrant.verdict.repetitions = repetitions.CallsFor(verdict.median_ns);
  }
  return entrants;
}

void TieBreak::TakeOver(RacingChoice& entrant, RacingChoice& choice, Verdict& verdict) {
  verdict.warm_median_ns = entrant.verdict.median_ns;
  if (!entrant.has_failed) return;
  choice.has_failed = true;
  verdict.outcome = choice.verdict.outcome = entrant.verdict.outcome;
  verdict.reason = choice.verdict.reason =
      "with its buffers in the cache: " + entrant.verdict.reason;
  verdict.median_ns = verdict.warm_median_ns = 0;
}

Status TieBreak::Run(std::span<RacingChoice> choices, CellResult& cell) {
  const std::vector<size_t> tied = TiedChoices(cell, SelectionRules::Of(parts_.settings));
  if (tied.empty()) return {};
  // The removal below makes groups anew, and knows the timed calls of the entrants alone.
  for (RacingChoice& choice : choices) choice.timed.reset();
  const SampleRepetitions repetitions(parts_.settings.SampleNs(), kOneCopy, problem_.cls.memory);
  std::vector<RacingChoice> entrants = Entrants(choices, tied, cell, repetitions);
  ChoiceRuns runs(parts_, problem_, buffers_, steps_, kOneCopy);
  ChoiceRemoval removal(parts_, problem_, entrants);
  // All choices have the same rounds of full samples, whatever the rules of the first race are,
  // which held them for equal: only medians of the same rounds can be compared, because others may
  // differ by what slowed the rounds.
  const int32_t rounds = parts_.settings.min_rounds;
  const RaceRules rules{.min_rounds = rounds, .max_rounds = rounds, .cuts = {}, .limits = {}};
  RaceLoop race(parts_, steps_, runs, removal, repetitions, window_);
  if (Status raced = race.Run(entrants, rules, 0); !raced) return raced;
  for (size_t i = 0; i < tied.size(); ++i) {
    TakeOver(entrants[i], choices[tied[i]], cell.verdicts[tied[i]]);
  }
  return {};
}

}  // namespace cotune
