// all_gather, all_to_all and reduce_scatter in chunks with flags: every rank pushes to each peer
// the block that is meant for it. In a round a thread block sends chunk c and takes chunk c - 1.
// COTUNE_COLLECTIVE_* says which.
#include "block_cut.cuh"
#include "flagged.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch(a);
  SpinBudget budget(a);
  Rounds rounds(a, budget);
  const FlaggedSlots slots(a);
  const unsigned long long block_bytes = a.count * kElementBytes;
  // The block of the send buffer that goes to `peer`, cut as it lies there, and the place of what
  // comes from it.
#if defined(COTUNE_COLLECTIVE_REDUCE_SCATTER)
  const auto block_for = [&](int peer) { return ArrayAt(a.send, peer * block_bytes, block_bytes); };
  const auto block_from = [&](int /*peer*/) { return ArrayAt(a.recv, 0, block_bytes); };
  const Chunks chunks(block_from(0).packs(), a.chunk_bytes);
#else
  const auto block_for = [&](int peer) {
#if defined(COTUNE_COLLECTIVE_ALL_GATHER)
    peer = 0;
#endif
    return BlockCut(a, a.rank).Of(a.send, peer);
  };
  const auto block_from = [&](int peer) { return BlockCut(a, peer).Of(a.recv, peer); };
  const Chunks chunks(BlockCut::Packs(a), a.chunk_bytes);
#endif
  if (chunks.count() == 0) return;
  const bool are_whole = IsAligned(a.send) && IsAligned(a.recv) && block_bytes % kPackBytes == 0;

  const auto send_chunk = [&](unsigned int c) {
    const unsigned int size = chunks.Size(c);
    const unsigned long long begin = chunks.Begin(c);
    ForPacks(size, are_whole, [&](auto access, unsigned int at) {
#if defined(COTUNE_COLLECTIVE_ALL_GATHER)
      constexpr int kBlocks = 1;
#else
      constexpr int kBlocks = kPeers;
#endif
      Pack packs_for[kBlocks][access.kUnroll];
#pragma unroll
      for (int hop = 0; hop < kBlocks; ++hop) {
        const PackArray block = block_for(PeerAfter(a.rank, hop));
#pragma unroll
        for (int u = 0; u < access.kUnroll; ++u) {
          const unsigned int i = at + u * blockDim.x;
          if (i < size) packs_for[hop][u] = access.Load(block, begin + i);
        }
      }
#pragma unroll
      for (int hop = 0; hop < kPeers; ++hop) {
        unsigned char* slot = slots.In(PeerAfter(a.rank, hop), a.rank, rounds.Number(c));
#pragma unroll
        for (int u = 0; u < access.kUnroll; ++u) {
          const unsigned int i = at + u * blockDim.x;
          if (i < size && rounds.IsOpen()) {
            StoreToPeer(slot + i * kPackBytes, packs_for[kBlocks == 1 ? 0 : hop][u]);
          }
        }
      }
    });
  };

#if !defined(COTUNE_COLLECTIVE_REDUCE_SCATTER)
  // A rank's own block, unless it is in place.
  const PackArray own_from = block_for(a.rank);
  const PackArray own_to = block_from(a.rank);
  const auto copy_own = [&](unsigned int c) {
    if (own_from.data == own_to.data) return;
    const unsigned int size = chunks.Size(c);
    const unsigned long long begin = chunks.Begin(c);
    ForPacks(size, are_whole, [&](auto access, unsigned int at) {
      Pack own[access.kUnroll];
#pragma unroll
      for (int u = 0; u < access.kUnroll; ++u) {
        const unsigned int i = at + u * blockDim.x;
        if (i < size) own[u] = access.Load(own_from, begin + i);
      }
#pragma unroll
      for (int u = 0; u < access.kUnroll; ++u) {
        const unsigned int i = at + u * blockDim.x;
        if (i < size) access.Store(own_to, begin + i, own[u]);
      }
    });
  };
#endif

  const auto take_chunk = [&](unsigned int c) {
    const unsigned int size = chunks.Size(c);
    const unsigned long long begin = chunks.Begin(c);
    ForPacks(size, are_whole, [&](auto access, unsigned int at) {
      Pack others[access.kUnroll][kPeers];
#pragma unroll
      for (int u = 0; u < access.kUnroll; ++u) {
        const unsigned int i = at + u * blockDim.x;
        if (i >= size) continue;
#pragma unroll
        for (int q = 0; q < kPeers; ++q) {
          others[u][q] =
              LoadFromPeer(slots.In(a.rank, PeerAt(q, a.rank), rounds.Number(c)) + i * kPackBytes);
        }
      }
#pragma unroll
      for (int u = 0; u < access.kUnroll; ++u) {
        const unsigned int i = at + u * blockDim.x;
        if (i >= size) continue;
#if defined(COTUNE_COLLECTIVE_REDUCE_SCATTER)
        const Pack own = access.Load(block_for(a.rank), begin + i);
        access.Store(block_from(a.rank), begin + i, ReduceInRankOrder(own, others[u], a.rank));
#else
#pragma unroll
        for (int q = 0; q < kPeers; ++q) {
          access.Store(block_from(PeerAt(q, a.rank)), begin + i, others[u][q]);
        }
#endif
      }
    });
  };

  const unsigned int count = chunks.count();
  for (unsigned int round = 0; round < count + 1; ++round) {
    if (round < count) send_chunk(round);
    if (round == 0 && !rounds.Begin()) return;
#if !defined(COTUNE_COLLECTIVE_REDUCE_SCATTER)
    if (round < count) copy_own(round);
#endif
    if (round >= 1) {
      if (!rounds.WaitForFlags(round - 1)) return;
      take_chunk(round - 1);
    }
    if (round < count) rounds.SetFlags(round);
  }
  rounds.End(count);
}
