// broadcast into registered buffers: the data is cut into a share for each rank but the root, which
// writes to each its share; they pass it on to each other, a round later. Only where data is
// written must be known: the root's send buffer is nothing that its peers are told of.
#include "chunks.cuh"
#include "rounds.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch(a);
  SpinBudget budget(a);
  Rounds rounds(a, budget);
  const unsigned long long bytes = a.count * kElementBytes;
  const PackArray recv = ArrayAt(a.recv, 0, bytes);
  const unsigned long long packs = recv.packs();
  const unsigned long long share = (packs + kPeers - 1) / kPeers;
  const Chunks chunks(share, static_cast<int>(blockDim.x) * COTUNE_UNROLL * kPackBytes);
  if (chunks.count() == 0) return;
  const bool is_root = a.rank == a.root;
  bool is_aligned = !is_root || IsAligned(a.send);
#pragma unroll
  for (int r = 0; r < COTUNE_WORLD_SIZE; ++r) {
    is_aligned = is_aligned && IsAligned(a.peer_recv[r]);
  }

  // Return the begin and the number of packs of the chunk of a rank that is not the root.
  const auto begin_of = [&](int owner, unsigned int c) {
    return static_cast<unsigned long long>(owner < a.root ? owner : owner - 1) * share +
           chunks.Begin(c);
  };
  const auto size_of = [&](int owner, unsigned int c) {
    const unsigned long long begin = begin_of(owner, c);
    const unsigned int size = chunks.Size(c);
    if (begin >= packs) return 0u;
    return packs - begin < size ? static_cast<unsigned int>(packs - begin) : size;
  };
  const auto are_whole = [&](int owner, unsigned int c) {
    return is_aligned && (begin_of(owner, c) + size_of(owner, c)) * kPackBytes <= bytes;
  };

  const auto send_chunk = [&](unsigned int c) {
    const PackArray send = ArrayAt(a.send, 0, bytes);
    const bool is_in_place = a.send == a.recv;
    for (int hop = 0; hop < kPeers; ++hop) {
      const int owner = PeerAfter(a.rank, hop);
      const PackArray to = ArrayAt(a.peer_recv[owner], 0, bytes);
      const unsigned long long begin = begin_of(owner, c);
      const unsigned int size = size_of(owner, c);
      ForPacks(size, are_whole(owner, c), [&](auto access, unsigned int at) {
        Pack mine[access.kUnroll];
#pragma unroll
        for (int u = 0; u < access.kUnroll; ++u) {
          const unsigned int i = at + u * blockDim.x;
          if (i < size) mine[u] = access.Load(send, begin + i);
        }
#pragma unroll
        for (int u = 0; u < access.kUnroll; ++u) {
          const unsigned int i = at + u * blockDim.x;
          if (i >= size) continue;
          access.StoreAtPeer(to, begin + i, mine[u]);
          if (!is_in_place) access.Store(recv, begin + i, mine[u]);
        }
      });
    }
  };

  const auto pass_on = [&](unsigned int c) {
    const unsigned long long begin = begin_of(a.rank, c);
    const unsigned int size = size_of(a.rank, c);
    ForPacks(size, are_whole(a.rank, c), [&](auto access, unsigned int at) {
      Pack own[access.kUnroll];
#pragma unroll
      for (int u = 0; u < access.kUnroll; ++u) {
        const unsigned int i = at + u * blockDim.x;
        if (i < size) own[u] = access.LoadOfPeer(recv, begin + i);
      }
#pragma unroll
      for (int hop = 0; hop < kPeers; ++hop) {
        const int peer = PeerAfter(a.rank, hop);
        if (peer == a.root) continue;
        const PackArray to = ArrayAt(a.peer_recv[peer], 0, bytes);
#pragma unroll
        for (int u = 0; u < access.kUnroll; ++u) {
          const unsigned int i = at + u * blockDim.x;
          if (i < size) access.StoreAtPeer(to, begin + i, own[u]);
        }
      }
    });
  };

  // Round 0: the peers have come this far, so their buffers are free. Chunk c is sent in round c +
  // 1 and passed on in round c + 2.
  if (!rounds.Begin()) return;
  rounds.SetFlags(0);
  if (!rounds.WaitForFlags(0)) return;
  const unsigned int count = chunks.count();
  for (unsigned int round = 1; round < count + 2; ++round) {
    if (is_root && round <= count) send_chunk(round - 1);
    if (round >= 2 && !rounds.WaitForFlags(round - 1)) return;
    if (kPeers > 1 && !is_root && round >= 2) pass_on(round - 2);
    rounds.SetFlags(round);
  }
  // All has arrived here.
  if (!rounds.WaitForLastFlags(count + 1)) return;
  rounds.End(count + 2);
}
