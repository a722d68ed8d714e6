#include <vector>

#include "plugins/host/algorithms.h"

namespace cotune::host {
namespace {

using B = ScheduleBuilder;

// The same part of every rank's contribution, in rank order; this rank's own lies at `own`.
std::vector<Place> ContributionsInRankOrder(int world_size, int rank, Place own) {
  std::vector<Place> sources;
  for (int r = 0; r < world_size; ++r) sources.push_back(r == rank ? own : B::Slot(r));
  return sources;
}

int Modulo(int value, int world_size) { return (value % world_size + world_size) % world_size; }

}  // namespace

Schedule ScheduleAlone(const Problem& problem, const SlotSize& size) {
  B b(problem, 0, {.regions = 0, .size = size});
  b.Copy(B::Input(), B::Output());
  return b.Finish();
}

Schedule ScheduleAllReduceOneShot(const Problem& problem, int rank, const SlotSize& size) {
  B b(problem, rank, {.size = size});
  b.WaitSlotFree();
  b.Copy(B::Input(), B::Slot(rank));
  b.Barrier();
  const Place own = size.input_is_computed ? B::Slot(rank) : B::Input();
  b.Reduce(ContributionsInRankOrder(problem.world_size, rank, own), B::Output(), true);
  return b.Finish();
}

Schedule ScheduleAllReduceTwoShot(const Problem& problem, int rank, const SlotSize& size) {
  const int world_size = problem.world_size;
  B b(problem, rank, {.parts = world_size, .size = size});
  b.WaitSlotFree();
  b.SetParts(0, rank);
  b.Copy(B::Input(), B::Slot(rank));
  b.SetParts(rank + 1, world_size);
  b.Copy(B::Input(), B::Slot(rank));

  // Nobody reads this rank's own part of its input, so the result takes that place in the slot.
  b.SetLag(1);
  b.SetParts(rank, rank + 1);
  b.Reduce(ContributionsInRankOrder(world_size, rank, B::Input()), B::Output(), B::Slot(rank),
           true);

  // Before the barrier: the owner overwrites this half's results in the next iteration.
  b.SetLag(2);
  for (int i = 1; i < world_size; ++i) {  // not all ranks read the same slot at once
    const int owner = (rank + i) % world_size;
    b.SetParts(owner, owner + 1);
    b.Copy(B::Slot(owner), B::Output());
  }
  b.SetLag(1);
  b.Barrier();
  return b.Finish();
}

Schedule ScheduleAllReduceRing(const Problem& problem, int rank, const SlotSize& size) {
  const int world_size = problem.world_size;
  const int previous = Modulo(rank - 1, world_size);
  B b(problem, rank, {.parts = world_size, .partial = true, .size = size});
  int step = 0;
  b.WaitSlotFree();
  b.SetParts(rank, rank + 1);
  b.Copy(B::Input(), B::Slot(rank));
  b.Signal(++step);
  for (int i = 1; i < world_size; ++i) {
    const int part = Modulo(rank - i, world_size);
    const bool first_sum = i == 1;  // what arrives is elements, not yet a partial sum
    const bool last_sum = i == world_size - 1;
    b.SetParts(part, part + 1);
    b.WaitSignal(previous, step);
    const std::vector<Place> sources = {first_sum ? B::Slot(previous) : B::PartialSlot(previous),
                                        B::Input()};
    if (last_sum) {
      b.Reduce(sources, B::Slot(rank), B::Output(), true);
    } else {
      b.Reduce(sources, B::PartialSlot(rank), false);
    }
    b.Signal(++step);
  }
  for (int i = 0; i < world_size - 1; ++i) {
    const int part = Modulo(rank - i, world_size);
    const bool passes_on = i != world_size - 2;
    b.SetParts(part, part + 1);
    b.WaitSignal(previous, step);
    if (passes_on) {
      b.Copy(B::Slot(previous), B::Slot(rank), B::Output());
      b.Signal(++step);
    } else {
      b.Copy(B::Slot(previous), B::Output());
    }
  }
  return b.Finish();
}

Schedule ScheduleAllReduceTree(const Problem& problem, int rank, const SlotSize& size) {
  constexpr int kUp = 1;
  constexpr int kDown = 2;
  constexpr int kUpRegion = 0;
  constexpr int kDownRegion = 1;
  const int world_size = problem.world_size;
  std::vector<int> children;
  int bit = 1;
  for (; (rank & bit) == 0 && bit < world_size; bit <<= 1) {
    if (rank + bit < world_size) children.push_back(rank + bit);
  }
  const int parent = rank & (rank - 1);
  B b(problem, rank, {.regions = 2, .partial = true, .size = size});
  b.WaitSlotFree();
  std::vector<Place> sources = {B::Input()};
  for (int child : children) {
    b.WaitSignal(child, kUp);
    const bool is_leaf = (child & 1) != 0 || child + 1 >= world_size;
    sources.push_back(is_leaf ? B::Slot(child, kUpRegion) : B::PartialSlot(child, kUpRegion));
  }
  if (rank == 0) {
    b.Reduce(sources, B::Slot(0, kDownRegion), B::Output(), true);
    b.Signal(kDown);
    return b.Finish();
  }
  if (children.empty()) {
    b.Copy(B::Input(), B::Slot(rank, kUpRegion));
  } else {
    b.Reduce(sources, B::PartialSlot(rank, kUpRegion), false);
  }
  b.Signal(kUp);
  b.WaitSignal(parent, kDown);
  if (children.empty()) {
    b.Copy(B::Slot(parent, kDownRegion), B::Output());
  } else {
    b.Copy(B::Slot(parent, kDownRegion), B::Slot(rank, kDownRegion), B::Output());
    b.Signal(kDown);
  }
  return b.Finish();
}

}  // namespace cotune::host
