// all_reduce on registered buffers: every rank reads its share of all peers' data where it lies,
// adds up and writes the result into every peer's buffer. Nothing goes through scratch.
#include "chunks.cuh"
#include "rounds.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch(a);
  SpinBudget budget(a);
  Rounds rounds(a, budget);
  const unsigned long long bytes = a.count * kElementBytes;
  const PackArray send = ArrayAt(a.send, 0, bytes);
  const PackArray recv = ArrayAt(a.recv, 0, bytes);
  const unsigned long long packs = send.packs();
  const unsigned long long share = (packs + COTUNE_WORLD_SIZE - 1) / COTUNE_WORLD_SIZE;
  // One pass of all threads each.
  const Chunks chunks(share, static_cast<int>(blockDim.x) * COTUNE_UNROLL * kPackBytes);
  if (chunks.count() == 0) return;
  bool is_aligned = true;
#pragma unroll
  for (int r = 0; r < COTUNE_WORLD_SIZE; ++r) {
    is_aligned = is_aligned && IsAligned(a.peer_send[r]) && IsAligned(a.peer_recv[r]);
  }
  const unsigned long long own = a.rank * share;
  const unsigned long long own_packs = own >= packs ? 0 : packs - own < share ? packs - own : share;

  // The peers have come this far, so their buffers are filled and free.
  if (!rounds.Begin()) return;
  rounds.SetFlags(0);
  if (!rounds.WaitForFlags(0)) return;
  for (unsigned int c = 0; c < chunks.count(); ++c) {
    const unsigned int size = chunks.SizeIn(own_packs, c);
    const unsigned long long begin = own + chunks.Begin(c);
    const bool are_whole = is_aligned && (begin + size) * kPackBytes <= bytes;
    ForPacks(size, are_whole, [&](auto access, unsigned int at) {
      Pack mine[access.kUnroll];
      Pack others[access.kUnroll][kPeers];
#pragma unroll
      for (int u = 0; u < access.kUnroll; ++u) {
        const unsigned int i = at + u * blockDim.x;
        if (i >= size) continue;
#pragma unroll
        for (int q = 0; q < kPeers; ++q) {
          const PackArray theirs = ArrayAt(a.peer_send[PeerAt(q, a.rank)], 0, bytes);
          others[u][q] = access.LoadOfPeer(theirs, begin + i);
        }
        mine[u] = access.Load(send, begin + i);
      }
#pragma unroll
      for (int u = 0; u < access.kUnroll; ++u) {
        const unsigned int i = at + u * blockDim.x;
        if (i >= size) continue;
        const Pack result = ReduceInRankOrder(mine[u], others[u], a.rank);
#pragma unroll
        for (int hop = 0; hop < kPeers; ++hop) {
          const PackArray theirs = ArrayAt(a.peer_recv[PeerAfter(a.rank, hop)], 0, bytes);
          access.StoreAtPeer(theirs, begin + i, result);
        }
        access.Store(recv, begin + i, result);
      }
    });
  }
  // All has arrived here, and nobody reads here any more.
  rounds.SetFlags(1);
  if (!rounds.WaitForLastFlags(1)) return;
  rounds.End(2);
}
