// The rules of selection: which class of choices has the winner, whether the default is kept, and
// which choices tie. Each function is pure. Pointers are to verdicts of the cell, which outlives
// them.
#ifndef COTUNE_CORE_SELECTION_STANDINGS_H_
#define COTUNE_CORE_SELECTION_STANDINGS_H_

#include <vector>

#include "core/selection/select_winner.h"
#include "core/selection/verdict.h"

namespace cotune {

using Verdicts = std::vector<const Verdict*>;

// The verdicts of a cell by the class of their choices.
struct VerdictClasses {
  Verdicts unfused;
  Verdicts fused;
};

VerdictClasses ClassesOf(const CellResult& cell);

Verdicts AllOf(const CellResult& cell);

// The fastest verdict that was timed to the end; if there is none, the fastest eliminated one.
const Verdict* FastestThatRaced(const Verdicts& verdicts);

// Returns whether a choice that was faster than the eliminated default in their common rounds
// failed later, so that it may be the one for which the race eliminated the default.
bool HasFasterOneFailed(const CellResult& cell, const Verdict& fallback);

// Returns whether the default wins although the other choice is faster. Another choice replaces
// the default only if it is faster by more than the noise, and if the 99 % intervals of both, from
// the same rounds, do not overlap.
bool IsDefaultKept(const CellResult& cell, const Verdict& fallback, const Verdict& faster,
                   const SelectionRules& rules);

// The least gain of a fused choice over an unfused one, in percent.
double LeastFusedGain(const SelectionRules& rules);

// Returns whether the fused choice is so much faster than the unfused one that it may win. An
// eliminated one was slower than some other choice, so it is not taken for one that was not.
bool IsWorthFusing(const Verdict& fused, const Verdict& unfused, const SelectionRules& rules);

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

Standings StandingsOf(const CellResult& cell, const SelectionRules& rules);

// The choices of TiedChoices (select_winner.h).
std::vector<const Verdict*> TiedVerdicts(const CellResult& cell, const Standings& standings,
                                         const SelectionRules& rules);

// The winner among the choices that tie with the fastest one; the fastest one without warm times.
const Verdict* BreakTie(const CellResult& cell, const Standings& standings,
                        const SelectionRules& rules);

// The fastest of the verdicts beside the chosen one; of those with enough samples for a time, if
// there are any. nullptr: no other one raced.
const Verdict* RunnerUp(const CellResult& cell, const Verdicts& verdicts, const Verdict* chosen);

}  // namespace cotune

#endif  // COTUNE_CORE_SELECTION_STANDINGS_H_
