#include <vector>

#include "plugins/host/algorithms.h"

namespace cotune::host {
namespace {

using B = ScheduleBuilder;

constexpr int kReady = 1;

// Takes the chunk from `parent` (or from the input, at the root), and publishes it when others read
// it here.
Schedule PassOn(const Problem& problem, int rank, int parent, bool has_children,
                const SlotSize& size) {
  B b(problem, rank, {.size = size});
  const bool is_root = rank == problem.root;
  if (has_children) b.WaitSlotFree();
  if (!is_root) b.WaitSignal(parent, kReady);
  const Place source = is_root ? B::Input() : B::Slot(parent);
  if (has_children) {
    b.Copy(source, B::Slot(rank), B::Output());
    b.Signal(kReady);
  } else {
    b.Copy(source, B::Output());
  }
  return b.Finish();
}

}  // namespace

Schedule ScheduleBroadcastFlat(const Problem& problem, int rank, const SlotSize& size) {
  return PassOn(problem, rank, problem.root, rank == problem.root, size);
}

Schedule ScheduleBroadcastTree(const Problem& problem, int rank, const SlotSize& size) {
  const int world_size = problem.world_size;
  const int position = (rank - problem.root + world_size) % world_size;  // the root has 0
  const int parent = ((position & (position - 1)) + problem.root) % world_size;
  const bool has_children = (position & 1) == 0 && position + 1 < world_size;
  return PassOn(problem, rank, parent, has_children, size);
}

Schedule ScheduleBroadcastChain(const Problem& problem, int rank, const SlotSize& size) {
  const int world_size = problem.world_size;
  const int position = (rank - problem.root + world_size) % world_size;
  const int parent = (rank - 1 + world_size) % world_size;
  return PassOn(problem, rank, parent, position + 1 < world_size, size);
}

}  // namespace cotune::host
