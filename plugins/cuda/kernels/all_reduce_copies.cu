// all_reduce on registered buffers where copy engines move the data: adds up what they have brought
// into the receive buffer, and what goes around their copies. The order of copies and launches is
// in copy_list.h.
#include "chunks.cuh"
#include "rounds.cuh"

using namespace cotune::cuda;

// The places of the addends of a rank and of the result, of the same size.
struct Addends {
  PackArray mine;
  PackArray of_peers[kPeers];
  PackArray result;
};

// Copies of this segment have come: block s of it holds what rank s had sent for this rank.
__device__ __forceinline__ Addends OfSegment(const KernelArguments& a, unsigned long long block) {
  const unsigned long long first = 1ull * a.segment * COTUNE_WORLD_SIZE;
  const unsigned long long own = (first + a.rank) * block;
  Addends found{ArrayAt(a.send, own, block), {}, ArrayAt(a.recv, own, block)};
#pragma unroll
  for (int q = 0; q < kPeers; ++q) {
    found.of_peers[q] = ArrayAt(a.recv, (first + PeerAt(q, a.rank)) * block, block);
  }
  return found;
}

// The rest that belongs to no block is so small that every rank reads all of it in place.
__device__ __forceinline__ Addends OfRest(const KernelArguments& a, unsigned long long bytes,
                                          unsigned long long begin) {
  const unsigned long long rest = bytes - begin;
  Addends found{ArrayAt(a.send, begin, rest), {}, ArrayAt(a.recv, begin, rest)};
#pragma unroll
  for (int q = 0; q < kPeers; ++q) {
    found.of_peers[q] = ArrayAt(a.peer_send[PeerAt(q, a.rank)], begin, rest);
  }
  return found;
}

__device__ __forceinline__ void AddUp(const Addends& from, bool are_whole, int rank) {
  const unsigned long long packs = from.mine.packs();
  const Chunks chunks(packs, static_cast<int>(blockDim.x) * COTUNE_UNROLL * kPackBytes);
  for (unsigned int c = 0; c < chunks.count(); ++c) {
    const unsigned int size = chunks.Size(c);
    const unsigned long long begin = chunks.Begin(c);
    ForPacks(size, are_whole, [&](auto access, unsigned int at) {
      Pack mine[access.kUnroll];
      Pack others[access.kUnroll][kPeers];
#pragma unroll
      for (int u = 0; u < access.kUnroll; ++u) {
        const unsigned int i = at + u * blockDim.x;
        if (i >= size) continue;
        mine[u] = access.Load(from.mine, begin + i);
#pragma unroll
        for (int q = 0; q < kPeers; ++q) {
          others[u][q] = access.LoadOfPeer(from.of_peers[q], begin + i);
        }
      }
#pragma unroll
      for (int u = 0; u < access.kUnroll; ++u) {
        const unsigned int i = at + u * blockDim.x;
        if (i >= size) continue;
        access.Store(from.result, begin + i, ReduceInRankOrder(mine[u], others[u], rank));
      }
    });
  }
}

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch(a);
  SpinBudget budget(a);
  Rounds rounds(a, budget);
  if (!rounds.Begin()) return;
  // All that lies in front of this launch on any rank's stream is done.
  rounds.SetFlags(0);
  if (!rounds.WaitForFlags(0)) return;
  if (a.segment < 0) {
    rounds.End(1);
    return;
  }
  const unsigned long long bytes = a.count * kElementBytes;
  const unsigned long long block = CopyBlockBytes(bytes, COTUNE_WORLD_SIZE);
  AddUp(OfSegment(a, block), IsAligned(a.send) && IsAligned(a.recv), a.rank);
  if (a.segment == static_cast<int>(kCopySegments) - 1) {
    AddUp(OfRest(a, bytes, kCopySegments * COTUNE_WORLD_SIZE * block), false, a.rank);
  }
  // Nobody needs what copies have brought any more: results may be copied over it.
  rounds.SetFlags(1);
  if (!rounds.WaitForFlags(1)) return;
  rounds.End(2);
}
