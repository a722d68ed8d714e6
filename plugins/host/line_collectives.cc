// The collectives for small problems: each rank puts its data into tagged lines and takes the
// others' as they come, without a barrier.
#include <vector>

#include "plugins/host/algorithms.h"

namespace cotune::host {
namespace {

using B = ScheduleBuilder;

B Builder(const Problem& problem, int rank, const SlotSize& size) {
  // The slot is not used, and whatever fits the lines is one chunk.
  SlotSize of_lines = size;
  of_lines.chunk_bytes = kLinesPerHalf * kCacheLineBytes;
  return B(problem, rank, {.regions = 0, .size = of_lines});
}

// The place of an input that is read twice.
Place InputReadTwice(B& b, int rank, const SlotSize& size) {
  if (!size.input_is_computed) return B::Input();
  b.Copy(B::Input(), B::Staging(rank));
  return B::Staging(rank);
}

// Own lines are written only once nobody reads what they held.
void PutBlocks(B& b, int world_size, int rank) {
  b.WaitSlotFree();
  for (int i = 1; i < world_size; ++i) {
    const int peer = (rank + i) % world_size;
    b.PutLines(B::Input(peer), B::Lines(rank, peer));
  }
  b.Signal(kLinesAreThere);
}

// Takes what each rank has in region `region` of its lines, and reduces all in the order of ranks.
void TakeAndReduce(B& b, int world_size, int rank, int region, Place own) {
  std::vector<Place> sources;
  for (int r = 0; r < world_size; ++r) sources.push_back(r == rank ? own : B::Staging(r));
  for (int i = 1; i < world_size; ++i) {
    const int peer = (rank + i) % world_size;
    b.TakeLines(B::Lines(peer, region), B::Staging(peer));
  }
  b.Reduce(sources, B::Output(), true);
}

}  // namespace

Schedule ScheduleAllReduceLines(const Problem& problem, int rank, const SlotSize& size) {
  B b = Builder(problem, rank, size);
  const Place own = InputReadTwice(b, rank, size);
  b.WaitSlotFree();
  b.PutLines(own, B::Lines(rank));
  b.Signal(kLinesAreThere);
  TakeAndReduce(b, problem.world_size, rank, 0, own);
  return b.Finish();
}

Schedule ScheduleAllGatherLines(const Problem& problem, int rank, const SlotSize& size) {
  B b = Builder(problem, rank, size);
  const Place own = InputReadTwice(b, rank, size);
  b.WaitSlotFree();
  b.PutLines(own, B::Lines(rank));
  b.Signal(kLinesAreThere);
  b.Copy(own, B::Output(rank));
  for (int i = 1; i < problem.world_size; ++i) {
    const int peer = (rank + i) % problem.world_size;
    b.TakeLines(B::Lines(peer), B::Output(peer));
  }
  return b.Finish();
}

Schedule ScheduleReduceScatterLines(const Problem& problem, int rank, const SlotSize& size) {
  B b = Builder(problem, rank, size);
  PutBlocks(b, problem.world_size, rank);
  TakeAndReduce(b, problem.world_size, rank, rank, B::Input(rank));
  return b.Finish();
}

Schedule ScheduleAllToAllLines(const Problem& problem, int rank, const SlotSize& size) {
  B b = Builder(problem, rank, size);
  PutBlocks(b, problem.world_size, rank);
  b.Copy(B::Input(rank), B::Output(rank));
  for (int i = 1; i < problem.world_size; ++i) {
    const int peer = (rank + i) % problem.world_size;
    b.TakeLines(B::Lines(peer, rank), B::Output(peer));
  }
  return b.Finish();
}

Schedule ScheduleBroadcastLines(const Problem& problem, int rank, const SlotSize& size) {
  B b = Builder(problem, rank, size);
  if (rank == problem.root) {
    const Place own = InputReadTwice(b, rank, size);
    b.WaitSlotFree();
    b.PutLines(own, B::Lines(rank));
    b.Signal(kLinesAreThere);
    b.Copy(own, B::Output());
  } else {
    b.TakeLines(B::Lines(problem.root), B::Output());
  }
  return b.Finish();
}

}  // namespace cotune::host
