// all_gather and reduce_scatter around a ring: blocks of the ranks are passed on, or sums of them.
// COTUNE_COLLECTIVE_* says which. The sum of a block begins at the rank behind the one that gets
// it.
#include "ring.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS, 1)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch(a);
  const unsigned long long block_bytes = a.count * kElementBytes;
  const Chunks chunks(ArrayAt(a.send, 0, block_bytes).packs(), a.chunk_bytes);
  if (chunks.count() == 0) return;
  const bool is_aligned = IsAligned(a.send) && IsAligned(a.recv) && block_bytes % kPackBytes == 0;
  const Ring ring(a.rank);
  SpinBudget budget(a);
  Queues queues(a, budget);
  Inlet from[] = {Inlet(a, ring.previous())};
  Outlet to[] = {Outlet(a, ring.next())};
  if (!queues.Begin()) return;

  constexpr int kLastStep = COTUNE_WORLD_SIZE - 1;
  const bool is_done = ForRingSteps(chunks.count(), kLastStep + 1, [&](int step, unsigned int c) {
    from[0].Use(step > 0);
    to[0].Use(step < kLastStep);
    const ChunkPlace chunk{chunks.Begin(c), chunks.Size(c), is_aligned};
#if defined(COTUNE_COLLECTIVE_ALL_GATHER)
    const int owner = ring.RankAt(ring.place() - step);
    const PackArray send = ArrayAt(a.send, 0, block_bytes);
    const PackArray recv = ArrayAt(a.recv, owner * block_bytes, block_bytes);
    return MoveChunk(queues, from, to, chunk, send, recv, step > 0 || send.data != recv.data);
#else
    const int owner = ring.RankAt(ring.place() - 1 - step);
    const PackArray send = ArrayAt(a.send, owner * block_bytes, block_bytes);
    const PackArray recv = ArrayAt(a.recv, 0, block_bytes);
    if (step < kLastStep) {
      return ReduceChunk<false>(queues, from, to, chunk, send, recv);
    }
    return ReduceChunk<true>(queues, from, to, chunk, send, recv);
#endif
  });
  if (!is_done) return;
  queues.Keep(from, to);
  queues.End();
}
