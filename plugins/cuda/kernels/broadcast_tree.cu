// broadcast in trees: every rank passes chunks on to two others, so that few hops reach all. The
// trees of the blocks have the same root and other ranks below it.
#include "tree.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS, 1)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch(a);
  const PackArray send = ArrayAt(a.send, 0, a.count * kElementBytes);
  const PackArray recv = ArrayAt(a.recv, 0, a.count * kElementBytes);
  const Chunks chunks(recv.packs(), a.chunk_bytes);
  if (chunks.count() == 0) return;
  const Tree tree(a.rank, a.root, blockIdx.x);
  const bool is_aligned = (!tree.is_root() || IsAligned(a.send)) && IsAligned(a.recv);
  SpinBudget budget(a);
  Queues queues(a, budget);
  Inlet from[] = {Inlet(a, tree.parent())};
  Outlet to[] = {Outlet(a, tree.child(0)), Outlet(a, tree.child(1))};
  if (!queues.Begin()) return;
  const bool keeps = !tree.is_root() || a.send != a.recv;
  for (unsigned int c = 0; c < chunks.count(); ++c) {
    const unsigned long long end = chunks.Begin(c) + chunks.Size(c);
    const ChunkPlace chunk{chunks.Begin(c), chunks.Size(c),
                           is_aligned && end * kPackBytes <= recv.end};
    if (!MoveChunk(queues, from, to, chunk, send, recv, keeps)) return;
  }
  queues.Keep(from, to);
  queues.End();
}
