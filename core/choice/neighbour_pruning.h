// The sizes of a node learn from each other: the order in which they are measured, and the choices
// that do not race at a size because they were far slower than the winner at the sizes around it.
//
// Pure. The cells are equal on all ranks, and so is everything here.
#ifndef COTUNE_CORE_CHOICE_NEIGHBOUR_PRUNING_H_
#define COTUNE_CORE_CHOICE_NEIGHBOUR_PRUNING_H_

#include <array>
#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "core/backend/backend.h"
#include "core/selection/select_winner.h"

namespace cotune {

// A size may be so many times as large as its neighbour, or as small. Each side of a size between
// two neighbours has this limit.
inline constexpr double kNeighbourFactorMax = 16;
// The same for a size beyond the largest neighbour: the times of two smaller sizes show less about
// it than those around it would.
inline constexpr double kBeyondFactorMax = 4;
// A choice does not race if it takes at least so many times as long as the winner, at both
// neighbours and, beyond them, at the size itself by its ratios at both.
inline constexpr double kSlowFactor = 2;
// The same for a size between two that are at most kCloseFactor times as small and as large. If the
// time of a call is a constant and a share for each byte, and that of the winner a concave function
// of the size, such a choice is at least as slow as the winner at the size itself.
inline constexpr double kSlowFactorOfClose = 1.5;
inline constexpr double kCloseFactor = 2;

// The sizes of a node in the order in which they are measured. All nodes of a tune have their
// `first` sizes measured before the others, so that a budget that ends early leaves no node out and
// no range of sizes.
struct MeasuringOrder {
  std::vector<uint64_t> first;  // ascending
  std::vector<uint64_t> rest;   // the largest, then ascending
};

// At the first sizes all choices race. Each of these is at most kNeighbourFactorMax times as large
// as the next smaller one, if the sizes allow it, and the largest one is at most 1 /
// kBeyondFactorMax of the largest size: choices that are 10 times as slow as others cost the most
// there. All sizes are first ones if none is so much smaller than the largest. sizes_bytes:
// ascending.
MeasuringOrder OrderOfSizes(std::span<const uint64_t> sizes_bytes);

// The reason of every refusal by RefuseSlowChoices begins with this.
inline constexpr std::string_view kNotRaced = "not raced: ";

// A choice that does not race, and the choices that were so much faster at its two neighbours.
struct SlowChoice {
  Refusal refusal;
  std::array<ChoiceId, 2> faster;
};

// Refuses the choices of the list that do not race at `bytes`, by the cells of the same node that
// are decided. The neighbours of a choice are the nearest smaller and the nearest larger size at
// which it has a time, or, if no larger one has a time of it, the two nearest smaller ones.
//
// The choice is compared with the winner of the neighbour if the list has it, and else with the
// fastest choice there that the list has: a choice that the list lacks, because its backend is gone
// or refuses the size, shows nothing about those that can run.
//
// These choices always race:
//   the default;
//   the winner of a neighbour, its default and its next best choices, which run what the winner
//   refuses;
//   a choice that failed at a size within kNeighbourFactorMax, or that has fewer than two
//   neighbours, or one beyond the limits above.
// Refusals of a cell have no part in this: the ranks do not compare them.
// These cells are no neighbours: unsteady ones, those without a winner, and those of `unusable`,
// the sizes of which no rank can run the winner. The ratio at a neighbour is that of the best
// sample of the choice, because an eliminated choice may have two samples, to the median of the
// choice that it is compared with.
std::vector<SlowChoice> RefuseSlowChoices(const ChoiceList& list, uint64_t bytes,
                                          const std::map<uint64_t, DecidedCell>& cells,
                                          const std::set<uint64_t>& unusable);

// Returns those of the slow choices that have to race after all, by the result of the cell in which
// they did not: all of them if the cell has no winner, and else those of which a faster choice did
// not run there.
std::vector<SlowChoice> ChoicesToRaceAfterAll(std::span<const SlowChoice> slow,
                                              const DecidedCell& decided);

}  // namespace cotune

#endif  // COTUNE_CORE_CHOICE_NEIGHBOUR_PRUNING_H_
