// broadcast along a chain, the ring without the link back to the root: every rank passes chunks on
// to the next one, so that all links carry data once the first chunk has come to the end.
#include "ring.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS, 1)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch(a);
  const PackArray send = ArrayAt(a.send, 0, a.count * kElementBytes);
  const PackArray recv = ArrayAt(a.recv, 0, a.count * kElementBytes);
  const Chunks chunks(recv.packs(), a.chunk_bytes);
  if (chunks.count() == 0) return;
  const bool is_root = a.rank == a.root;
  const bool is_aligned = (!is_root || IsAligned(a.send)) && IsAligned(a.recv);
  const Ring ring(a.rank);
  SpinBudget budget(a);
  Queues queues(a, budget);
  Inlet from[] = {Inlet(a, is_root ? -1 : ring.previous())};
  Outlet to[] = {Outlet(a, ring.next() == a.root ? -1 : ring.next())};
  if (!queues.Begin()) return;
  const bool keeps = !is_root || a.send != a.recv;
  for (unsigned int c = 0; c < chunks.count(); ++c) {
    const unsigned long long end = chunks.Begin(c) + chunks.Size(c);
    const ChunkPlace chunk{chunks.Begin(c), chunks.Size(c),
                           is_aligned && end * kPackBytes <= recv.end};
    if (!MoveChunk(queues, from, to, chunk, send, recv, keeps)) return;
  }
  queues.Keep(from, to);
  queues.End();
}
