// all_reduce in trees: sums go up to the root, a chunk after the other, and results come down.
// Every block has a tree of its own with another root. All ranks have the same bits, as the root
// alone adds up last; the order of additions of an element depends on count, blocks and chunk_bytes
// alone.
#include "tree.cuh"

using namespace cotune::cuda;

// So many chunks go up before the result of the first one is taken: sums need not wait for results.
// The root sends results without taking any, hence less than the slots.
constexpr unsigned int kRoundsToResult = 4;
static_assert(kRoundsToResult < kQueueSlots);

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS, 1)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch(a);
  const PackArray send = ArrayAt(a.send, 0, a.count * kElementBytes);
  const PackArray recv = ArrayAt(a.recv, 0, a.count * kElementBytes);
  const Chunks chunks(send.packs(), a.chunk_bytes);
  const unsigned int count = chunks.count();
  if (count == 0) return;
  const bool is_aligned = IsAligned(a.send) && IsAligned(a.recv);
  const Tree tree(a.rank, static_cast<int>(blockIdx.x % COTUNE_WORLD_SIZE),
                  blockIdx.x / COTUNE_WORLD_SIZE);
  SpinBudget budget(a);
  Queues queues(a, budget);
  Inlet sums[] = {Inlet(a, tree.child(0)), Inlet(a, tree.child(1))};
  Outlet up[] = {Outlet(a, tree.parent())};
  Inlet results[] = {Inlet(a, tree.parent())};
  Outlet down[] = {Outlet(a, tree.child(0)), Outlet(a, tree.child(1))};
  if (!queues.Begin()) return;

  const auto place_of = [&](unsigned int c) {
    const unsigned long long end = chunks.Begin(c) + chunks.Size(c);
    return ChunkPlace{chunks.Begin(c), chunks.Size(c), is_aligned && end * kPackBytes <= send.end};
  };
  if (tree.is_root()) {
    for (unsigned int c = 0; c < count; ++c) {
      const ChunkPlace chunk = place_of(c);
      if (!ReduceChunk<true>(queues, sums, down, chunk, send, recv)) return;
    }
  } else {
    for (unsigned int round = 0; round < count + kRoundsToResult; ++round) {
      if (round < count) {
        const ChunkPlace chunk = place_of(round);
        if (!ReduceChunk<false>(queues, sums, up, chunk, send, recv)) return;
      }
      if (round < kRoundsToResult) continue;
      if (!MoveChunk(queues, results, down, place_of(round - kRoundsToResult), send, recv, true)) {
        return;
      }
    }
  }
  queues.Keep(sums, up);
  queues.Keep(results, down);
  queues.End();
}
