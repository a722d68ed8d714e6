// Gives every rank the knowledge that rank 0 has from before a tune.
#ifndef COTUNE_CORE_SCHEDULER_RANK_ZERO_KNOWLEDGE_H_
#define COTUNE_CORE_SCHEDULER_RANK_ZERO_KNOWLEDGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/database/known_cells.h"
#include "core/ranks/rank_exchange.h"
#include "core/scheduler/tune_cell.h"
#include "core/selection/select_winner.h"

namespace cotune {

// Collective. Only rank 0's `known` counts; nullptr: it knows nothing.

// The choices that have ended a tune.
Result<std::vector<LeftOutChoice>> ShareLeftOut(RankExchange& exchange, KnownCells* known,
                                                int64_t deadline_ns);
// The results that earlier tunes have left for these cells, which are the same on all ranks
// (CompareTunes), decided by `rules`. A cell whose winner is left out is not known. So many threads
// share the work of a rank.
Result<std::vector<std::optional<DecidedCell>>> ShareKnownCells(
    RankExchange& exchange, KnownCells* known, std::span<const CellPlace> places,
    std::span<const LeftOutChoice> left_out, const SelectionRules& rules, size_t threads,
    int64_t deadline_ns);

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_RANK_ZERO_KNOWLEDGE_H_
