// The algorithms: each makes the schedule of one rank. Pure functions; 2 to kRanksMax ranks, any
// number of them. Where the ranks do not fit a regular shape, those that are left over hand their
// data to a rank inside it and get the result back.
#ifndef COTUNE_PLUGINS_UCX_ALGORITHMS_H_
#define COTUNE_PLUGINS_UCX_ALGORITHMS_H_

#include <vector>

#include "plugins/ucx/schedule.h"

namespace cotune::ucx {

// Copies the input; for one rank.
Schedule ScheduleAlone(const Problem& problem, int rank, const Parameters& parameters);

// all_reduce. Knomial exchange (by radix 2 recursive doubling): everything in each step.
Schedule ScheduleAllReduceKnomial(const Problem& problem, int rank, const Parameters& parameters);
// Knomial reduce_scatter, then knomial all_gather. Combines elements in the order of the above.
Schedule ScheduleAllReduceScatterGather(const Problem& problem, int rank,
                                        const Parameters& parameters);
Schedule ScheduleAllReduceRing(const Problem& problem, int rank, const Parameters& parameters);
// Two trees, each for half of the elements; a rank has children in at most one of them.
Schedule ScheduleAllReduceDoubleTree(const Problem& problem, int rank,
                                     const Parameters& parameters);

Schedule ScheduleAllGatherKnomial(const Problem& problem, int rank, const Parameters& parameters);
Schedule ScheduleAllGatherBruck(const Problem& problem, int rank, const Parameters& parameters);
Schedule ScheduleAllGatherRing(const Problem& problem, int rank, const Parameters& parameters);
Schedule ScheduleAllGatherLinear(const Problem& problem, int rank, const Parameters& parameters);

Schedule ScheduleReduceScatterHalving(const Problem& problem, int rank,
                                      const Parameters& parameters);
Schedule ScheduleReduceScatterRing(const Problem& problem, int rank, const Parameters& parameters);

Schedule ScheduleAllToAllBruck(const Problem& problem, int rank, const Parameters& parameters);
Schedule ScheduleAllToAllPairwise(const Problem& problem, int rank, const Parameters& parameters);

Schedule ScheduleBroadcastKnomial(const Problem& problem, int rank, const Parameters& parameters);
Schedule ScheduleBroadcastScatterGather(const Problem& problem, int rank,
                                        const Parameters& parameters);
Schedule ScheduleBroadcastChain(const Problem& problem, int rank, const Parameters& parameters);

// The ranks of a knomial exchange: `full` ranks, the product of the factors, take part in it; rank
// full + i hands its data to rank i. Most factors are the radix.
struct KnomialShape {
  int full = 1;
  std::vector<int> factors;

  int Extras(int world_size) const { return world_size - full; }
  int LargestFactor() const;
};
KnomialShape KnomialShapeOf(int world_size, int radix);

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_ALGORITHMS_H_
