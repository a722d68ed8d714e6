// all_reduce around a ring. The data is cut into a share for each place of the ring. The sum of a
// share begins at the rank behind its place, goes once around, where every rank adds its own data,
// and is whole at its place; from there the result goes around once more. So all ranks have the
// same bits; the order of additions of an element depends on count, blocks and chunk_bytes alone.
#include "ring.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS, 1)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch(a);
  const PackArray send = ArrayAt(a.send, 0, a.count * kElementBytes);
  const PackArray recv = ArrayAt(a.recv, 0, a.count * kElementBytes);
  const unsigned long long packs = send.packs();
  const unsigned long long share = (packs + COTUNE_WORLD_SIZE - 1) / COTUNE_WORLD_SIZE;
  const Chunks chunks(share, a.chunk_bytes);
  if (chunks.count() == 0) return;
  const bool is_aligned = IsAligned(a.send) && IsAligned(a.recv);
  const Ring ring(a.rank);
  SpinBudget budget(a);
  Queues queues(a, budget);
  Inlet from[] = {Inlet(a, ring.previous())};
  Outlet to[] = {Outlet(a, ring.next())};
  if (!queues.Begin()) return;

  // The chunk in the share of the place: the shares at the end may be short.
  const auto place_of = [&](int place, unsigned int c) {
    const unsigned long long begin = place * share;
    const unsigned long long rest = begin >= packs ? 0 : packs - begin;
    ChunkPlace chunk;
    chunk.begin = begin + chunks.Begin(c);
    chunk.size = chunks.SizeIn(rest < share ? rest : share, c);
    chunk.are_whole = is_aligned && (chunk.begin + chunk.size) * kPackBytes <= send.end;
    return chunk;
  };

  constexpr int kResultStep = COTUNE_WORLD_SIZE - 1;
  constexpr int kLastStep = 2 * COTUNE_WORLD_SIZE - 2;
  const bool is_done = ForRingSteps(chunks.count(), kLastStep + 1, [&](int step, unsigned int c) {
    from[0].Use(step > 0);
    to[0].Use(step < kLastStep);
    // Down to place + 1 - 2 * COTUNE_WORLD_SIZE.
    const int place = (ring.place() - 1 - step + 2 * COTUNE_WORLD_SIZE) % COTUNE_WORLD_SIZE;
    const ChunkPlace chunk = place_of(place, c);
    if (step > kResultStep) return MoveChunk(queues, from, to, chunk, send, recv, true);
    if (step < kResultStep) {
      return ReduceChunk<false>(queues, from, to, chunk, send, recv);
    }
    return ReduceChunk<true>(queues, from, to, chunk, send, recv);
  });
  if (!is_done) return;
  queues.Keep(from, to);
  queues.End();
}
