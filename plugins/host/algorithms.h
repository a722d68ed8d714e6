// The algorithms: pure functions that write down what one rank does.
//
// Arguments of all: a valid problem with 2 to kMaxRanks ranks (1 rank: only ScheduleAlone), the
// rank that will run the schedule, and the size of a slot and of its chunks. Schedules of one
// algorithm for the ranks of a group fit together when problem and size are equal; see FitsSlot.
// Peer reads take no computed input. Any thread; no errors.
#ifndef COTUNE_PLUGINS_HOST_ALGORITHMS_H_
#define COTUNE_PLUGINS_HOST_ALGORITHMS_H_

#include "plugins/host/schedule.h"

namespace cotune::host {

// One rank: the result is its own input.
Schedule ScheduleAlone(const Problem& problem, const SlotSize& size);

// All ranks publish their input; each reduces all of it. One barrier a chunk.
Schedule ScheduleAllReduceOneShot(const Problem& problem, int rank, const SlotSize& size);
// Each rank reduces its share of the chunk and publishes it. One barrier a chunk, two at the ends.
Schedule ScheduleAllReduceTwoShot(const Problem& problem, int rank, const SlotSize& size);
// Partial sums travel around the ring, then results do. Only neighbours wait for each other.
Schedule ScheduleAllReduceRing(const Problem& problem, int rank, const SlotSize& size);
// Partial sums climb a binomial tree to rank 0, and the result comes down.
Schedule ScheduleAllReduceTree(const Problem& problem, int rank, const SlotSize& size);

// All ranks publish their block; each copies the others'.
Schedule ScheduleAllGatherDirect(const Problem& problem, int rank, const SlotSize& size);
// Blocks travel around the ring.
Schedule ScheduleAllGatherRing(const Problem& problem, int rank, const SlotSize& size);
// Each rank reads the others' blocks straight from their processes: one copy instead of two.
Schedule ScheduleAllGatherPeerRead(const Problem& problem, int rank, const SlotSize& size);

// All ranks publish their blocks for the others; each reduces its own.
Schedule ScheduleReduceScatterDirect(const Problem& problem, int rank, const SlotSize& size);
// Partial sums travel around the ring and end at their owner.
Schedule ScheduleReduceScatterRing(const Problem& problem, int rank, const SlotSize& size);

// All ranks publish their blocks for the others; each copies its own.
Schedule ScheduleAllToAllDirect(const Problem& problem, int rank, const SlotSize& size);
// Ranks meet in pairs, as in a tournament, and swap their blocks.
Schedule ScheduleAllToAllPairwise(const Problem& problem, int rank, const SlotSize& size);
// Each rank reads its blocks straight from the others' processes. Not in place.
Schedule ScheduleAllToAllPeerRead(const Problem& problem, int rank, const SlotSize& size);

// Small problems, in tagged lines: data comes with the word that says so. What a rank publishes
// fits kLinesPerHalf lines, of which each block begins a new one.
Schedule ScheduleAllReduceLines(const Problem& problem, int rank, const SlotSize& size);
Schedule ScheduleAllGatherLines(const Problem& problem, int rank, const SlotSize& size);
Schedule ScheduleReduceScatterLines(const Problem& problem, int rank, const SlotSize& size);
Schedule ScheduleAllToAllLines(const Problem& problem, int rank, const SlotSize& size);
Schedule ScheduleBroadcastLines(const Problem& problem, int rank, const SlotSize& size);

// The root publishes; all copy from it.
Schedule ScheduleBroadcastFlat(const Problem& problem, int rank, const SlotSize& size);
// Down a binomial tree from the root.
Schedule ScheduleBroadcastTree(const Problem& problem, int rank, const SlotSize& size);
// All read straight from the root's process.
Schedule ScheduleBroadcastPeerRead(const Problem& problem, int rank, const SlotSize& size);
// From each rank to the next; chunks follow each other.
Schedule ScheduleBroadcastChain(const Problem& problem, int rank, const SlotSize& size);

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_ALGORITHMS_H_
