// all_gather, all_to_all and reduce_scatter on registered buffers. What is only moved is written
// where the peers want it; what is added up is read where it lies. COTUNE_COLLECTIVE_* says which.
#include "block_cut.cuh"
#include "chunks.cuh"
#include "rounds.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch(a);
  SpinBudget budget(a);
  Rounds rounds(a, budget);
  const unsigned long long block_bytes = a.count * kElementBytes;
  // A block of a buffer. What is read or written over the link is the block of this rank's place:
  // all are cut as that one lies there.
  const BlockCut cut(a, a.rank);
  const auto block_of = [&](const void* buffer, int block) { return cut.Of(buffer, block); };
  const Chunks chunks(BlockCut::Packs(a),
                      static_cast<int>(blockDim.x) * COTUNE_UNROLL * kPackBytes);
  if (chunks.count() == 0) return;
  bool are_whole = IsAligned(a.send) && IsAligned(a.recv) && block_bytes % kPackBytes == 0;
#pragma unroll
  for (int r = 0; r < COTUNE_WORLD_SIZE; ++r) {
#if defined(COTUNE_COLLECTIVE_REDUCE_SCATTER)
    are_whole = are_whole && IsAligned(a.peer_send[r]);
#else
    are_whole = are_whole && IsAligned(a.peer_recv[r]);
#endif
  }

#if defined(COTUNE_COLLECTIVE_REDUCE_SCATTER)
  const auto work_on = [&](unsigned int size, unsigned long long begin) {
    ForPacks(size, are_whole, [&](auto access, unsigned int at) {
      Pack mine[access.kUnroll];
      Pack others[access.kUnroll][kPeers];
#pragma unroll
      for (int u = 0; u < access.kUnroll; ++u) {
        const unsigned int i = at + u * blockDim.x;
        if (i >= size) continue;
#pragma unroll
        for (int q = 0; q < kPeers; ++q) {
          const PackArray theirs = block_of(a.peer_send[PeerAt(q, a.rank)], a.rank);
          others[u][q] = access.LoadOfPeer(theirs, begin + i);
        }
        mine[u] = access.Load(block_of(a.send, a.rank), begin + i);
      }
#pragma unroll
      for (int u = 0; u < access.kUnroll; ++u) {
        const unsigned int i = at + u * blockDim.x;
        if (i >= size) continue;
        access.Store(block_of(a.recv, 0), begin + i, ReduceInRankOrder(mine[u], others[u], a.rank));
      }
    });
  };
#else
  const auto work_on = [&](unsigned int size, unsigned long long begin) {
    ForPacks(size, are_whole, [&](auto access, unsigned int at) {
#if defined(COTUNE_COLLECTIVE_ALL_GATHER)
      constexpr int kBlocks = 1;
      const auto block_for = [&](int /*rank*/) { return block_of(a.send, 0); };
#else
      constexpr int kBlocks = COTUNE_WORLD_SIZE;
      const auto block_for = [&](int rank) { return block_of(a.send, rank); };
#endif
      // The own block comes last.
      Pack packs_for[kBlocks][access.kUnroll];
#pragma unroll
      for (int hop = 0; hop < kBlocks; ++hop) {
#pragma unroll
        for (int u = 0; u < access.kUnroll; ++u) {
          const unsigned int i = at + u * blockDim.x;
          if (i >= size) continue;
          packs_for[hop][u] = access.Load(block_for(PeerAfter(a.rank, hop)), begin + i);
        }
      }
#pragma unroll
      for (int hop = 0; hop < COTUNE_WORLD_SIZE; ++hop) {
        const int peer = PeerAfter(a.rank, hop);
        const PackArray to = block_of(a.peer_recv[peer], a.rank);
#pragma unroll
        for (int u = 0; u < access.kUnroll; ++u) {
          const unsigned int i = at + u * blockDim.x;
          if (i < size) access.StoreAtPeer(to, begin + i, packs_for[kBlocks == 1 ? 0 : hop][u]);
        }
      }
    });
  };
#endif

  // The peers have come this far, so their buffers are filled and free.
  if (!rounds.Begin()) return;
  rounds.SetFlags(0);
  if (!rounds.WaitForFlags(0)) return;
  for (unsigned int c = 0; c < chunks.count(); ++c) work_on(chunks.Size(c), chunks.Begin(c));
  // All has arrived here, and nobody reads here any more.
  rounds.SetFlags(1);
  if (!rounds.WaitForLastFlags(1)) return;
  rounds.End(2);
}
