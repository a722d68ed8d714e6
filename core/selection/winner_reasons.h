// The reasons of selection in words: why a choice wins a cell, or why none does. Each function is
// pure.
#ifndef COTUNE_CORE_SELECTION_WINNER_REASONS_H_
#define COTUNE_CORE_SELECTION_WINNER_REASONS_H_

#include <string>

#include "core/base/status.h"
#include "core/selection/select_winner.h"
#include "core/selection/standings.h"
#include "core/selection/verdict.h"

namespace cotune {

// The sentence of Winner::why.
std::string WhyWins(const CellResult& cell, const Verdict& chosen, const Standings& standings,
                    const SelectionRules& rules);

// The error of a cell of which no choice has a time: the fate of each choice, or the refusals if no
// backend offers one.
tl::unexpected<Error> NoWinner(const CellResult& cell);

}  // namespace cotune

#endif  // COTUNE_CORE_SELECTION_WINNER_REASONS_H_
