// all_gather, reduce_scatter and all_to_all, which have one block for each rank, and the
// algorithms that read the other processes.
#include <vector>

#include "plugins/host/algorithms.h"

namespace cotune::host {
namespace {

using B = ScheduleBuilder;

int Modulo(int value, int world_size) { return (value % world_size + world_size) % world_size; }

// Publishes in region q the block that is meant for rank q.
void PublishBlocks(B& b, int world_size, int rank) {
  b.WaitSlotFree();
  for (int i = 1; i < world_size; ++i) {
    const int peer = (rank + i) % world_size;
    b.Copy(B::Input(peer), B::Slot(rank, peer));
  }
}

// The others read this rank's buffer: not before it is there, and it stays until all have read.
template <class Body>
Schedule ReadPeers(const Problem& problem, int rank, const SlotSize& size, Body body) {
  B b(problem, rank, {.regions = 0, .reads_peers = true, .size = size});
  b.SetWhen(When::kFirst);
  b.Barrier();
  b.SetWhen(When::kAlways);
  body(b);
  b.SetWhen(When::kLast);
  b.Barrier();
  return b.Finish();
}

}  // namespace

Schedule ScheduleAllGatherPeerRead(const Problem& problem, int rank, const SlotSize& size) {
  return ReadPeers(problem, rank, size, [&](B& b) {
    b.Copy(B::Input(), B::Output(rank));
    for (int i = 1; i < problem.world_size; ++i) {
      const int peer = (rank + i) % problem.world_size;
      b.Copy(B::PeerInput(peer), B::Output(peer));
    }
  });
}

Schedule ScheduleAllToAllPeerRead(const Problem& problem, int rank, const SlotSize& size) {
  return ReadPeers(problem, rank, size, [&](B& b) {
    b.Copy(B::Input(rank), B::Output(rank));
    for (int i = 1; i < problem.world_size; ++i) {
      const int peer = (rank + i) % problem.world_size;
      b.Copy(B::PeerInput(peer, rank), B::Output(peer));
    }
  });
}

Schedule ScheduleBroadcastPeerRead(const Problem& problem, int rank, const SlotSize& size) {
  return ReadPeers(problem, rank, size, [&](B& b) {
    b.Copy(rank == problem.root ? B::Input() : B::PeerInput(problem.root), B::Output());
  });
}

Schedule ScheduleAllGatherDirect(const Problem& problem, int rank, const SlotSize& size) {
  B b(problem, rank, {.size = size});
  b.WaitSlotFree();
  b.Copy(B::Input(), B::Slot(rank), B::Output(rank));
  b.Barrier();
  for (int i = 1; i < problem.world_size; ++i) {
    const int peer = (rank + i) % problem.world_size;
    b.Copy(B::Slot(peer), B::Output(peer));
  }
  return b.Finish();
}

Schedule ScheduleAllGatherRing(const Problem& problem, int rank, const SlotSize& size) {
  const int world_size = problem.world_size;
  const int previous = Modulo(rank - 1, world_size);
  // The last block is not passed on: one region fewer than ranks.
  B b(problem, rank, {.regions = world_size - 1, .size = size});
  b.WaitSlotFree();
  b.Copy(B::Input(), B::Slot(rank, 0), B::Output(rank));
  b.Signal(1);
  for (int i = 1; i < world_size; ++i) {
    const int block = Modulo(rank - i, world_size);
    b.WaitSignal(previous, i);
    if (i == world_size - 1) {
      b.Copy(B::Slot(previous, i - 1), B::Output(block));
    } else {
      b.Copy(B::Slot(previous, i - 1), B::Slot(rank, i), B::Output(block));
      b.Signal(i + 1);
    }
  }
  return b.Finish();
}

Schedule ScheduleReduceScatterDirect(const Problem& problem, int rank, const SlotSize& size) {
  const int world_size = problem.world_size;
  B b(problem, rank, {.regions = world_size, .size = size});
  PublishBlocks(b, world_size, rank);
  b.Barrier();
  std::vector<Place> sources;
  for (int r = 0; r < world_size; ++r) {
    sources.push_back(r == rank ? B::Input(rank) : B::Slot(r, rank));
  }
  b.Reduce(sources, B::Output(), true);
  return b.Finish();
}

Schedule ScheduleReduceScatterRing(const Problem& problem, int rank, const SlotSize& size) {
  const int world_size = problem.world_size;
  const int previous = Modulo(rank - 1, world_size);
  B b(problem, rank, {.regions = world_size - 1, .partial = true, .size = size});
  b.WaitSlotFree();
  // Block q starts at rank q + 1 and comes to its owner after world_size - 1 steps.
  b.Copy(B::Input(previous), B::Slot(rank, 0));
  b.Signal(1);
  for (int i = 1; i < world_size; ++i) {
    const int block = Modulo(rank - 1 - i, world_size);
    const Place arriving = i == 1 ? B::Slot(previous, 0) : B::PartialSlot(previous, i - 1);
    b.WaitSignal(previous, i);
    if (i == world_size - 1) {
      b.Reduce({arriving, B::Input(block)}, B::Output(), true);
    } else {
      b.Reduce({arriving, B::Input(block)}, B::PartialSlot(rank, i), false);
      b.Signal(i + 1);
    }
  }
  return b.Finish();
}

Schedule ScheduleAllToAllDirect(const Problem& problem, int rank, const SlotSize& size) {
  const int world_size = problem.world_size;
  B b(problem, rank, {.regions = world_size, .size = size});
  PublishBlocks(b, world_size, rank);
  b.Copy(B::Input(rank), B::Output(rank));
  b.Barrier();
  for (int i = 1; i < world_size; ++i) {
    const int peer = (rank + i) % world_size;
    b.Copy(B::Slot(peer, rank), B::Output(peer));
  }
  return b.Finish();
}

Schedule ScheduleAllToAllPairwise(const Problem& problem, int rank, const SlotSize& size) {
  const int world_size = problem.world_size;
  B b(problem, rank, {.regions = world_size, .size = size});
  b.WaitSlotFree();
  b.Copy(B::Input(rank), B::Output(rank));
  for (int round = 0; round < world_size; ++round) {
    // Both partners compute each other, so a block has left before its place is overwritten and the
    // buffers may be the same.
    const int partner = Modulo(round - rank, world_size);
    if (partner == rank) continue;
    b.Copy(B::Input(partner), B::Slot(rank, partner));
    b.Signal(round + 1);
    b.WaitSignal(partner, round + 1);
    b.Copy(B::Slot(partner, rank), B::Output(partner));
  }
  return b.Finish();
}

}  // namespace cotune::host
