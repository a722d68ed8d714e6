// broadcast in chunks with flags: the data is cut into a share for each rank but the root, which
// sends to each its share; they pass it on to each other. So no link carries more than the data
// once. In a round a block sends chunk c, passes on chunk c - 1 and takes what was passed on of
// chunk c - 2.
#include "flagged.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch(a);
  SpinBudget budget(a);
  Rounds rounds(a, budget);
  const FlaggedSlots slots(a);
  const PackArray send = ArrayAt(a.send, 0, a.count * kElementBytes);
  const PackArray recv = ArrayAt(a.recv, 0, a.count * kElementBytes);
  const unsigned long long packs = recv.packs();
  const unsigned long long share = (packs + kPeers - 1) / kPeers;
  const Chunks chunks(share, a.chunk_bytes);
  if (chunks.count() == 0) return;
  const bool is_root = a.rank == a.root;
  const bool is_aligned = (!is_root || IsAligned(a.send)) && IsAligned(a.recv);
  const bool ends_whole = recv.end % kPackBytes == 0;
  const unsigned long long last = (packs - 1) % share;  // pack of its share

  // Returns the begin of the share of a rank that is not the root.
  const auto share_of = [&](int owner) {
    return static_cast<unsigned long long>(owner < a.root ? owner : owner - 1) * share;
  };
  const auto size_of = [&](int owner, unsigned int c) {
    const unsigned long long begin = share_of(owner);
    if (begin >= packs) return 0u;
    return chunks.SizeIn(packs - begin < share ? packs - begin : share, c);
  };
  const auto are_whole = [&](unsigned int c) {
    const bool has_last = last >= chunks.Begin(c) && last - chunks.Begin(c) < chunks.Size(c);
    return is_aligned && (ends_whole || !has_last);
  };

  const auto send_chunk = [&](unsigned int c) {
    const unsigned long long begin = chunks.Begin(c);
    const bool is_in_place = a.send == a.recv;
    ForPacks(chunks.Size(c), are_whole(c), [&](auto access, unsigned int at) {
      Pack packs_for[kPeers][access.kUnroll];
#pragma unroll
      for (int hop = 0; hop < kPeers; ++hop) {
        const int owner = PeerAfter(a.rank, hop);
#pragma unroll
        for (int u = 0; u < access.kUnroll; ++u) {
          const unsigned int i = at + u * blockDim.x;
          if (i >= size_of(owner, c)) continue;
          packs_for[hop][u] = access.Load(send, share_of(owner) + begin + i);
        }
      }
#pragma unroll
      for (int hop = 0; hop < kPeers; ++hop) {
        const int owner = PeerAfter(a.rank, hop);
        unsigned char* slot = slots.In(owner, a.rank, rounds.Number(c));
#pragma unroll
        for (int u = 0; u < access.kUnroll; ++u) {
          const unsigned int i = at + u * blockDim.x;
          if (i >= size_of(owner, c)) continue;
          if (rounds.IsOpen()) StoreToPeer(slot + i * kPackBytes, packs_for[hop][u]);
          if (!is_in_place) access.Store(recv, share_of(owner) + begin + i, packs_for[hop][u]);
        }
      }
    });
  };

  const auto pass_on = [&](unsigned int c) {
    const unsigned int size = size_of(a.rank, c);
    const unsigned long long begin = share_of(a.rank) + chunks.Begin(c);
    const unsigned char* slot = slots.In(a.rank, a.root, rounds.Number(c));
    ForPacks(size, are_whole(c), [&](auto access, unsigned int at) {
      Pack own[access.kUnroll];
#pragma unroll
      for (int u = 0; u < access.kUnroll; ++u) {
        const unsigned int i = at + u * blockDim.x;
        if (i < size) own[u] = LoadFromPeer(slot + i * kPackBytes);
      }
#pragma unroll
      for (int u = 0; u < access.kUnroll; ++u) {
        const unsigned int i = at + u * blockDim.x;
        if (i >= size) continue;
#pragma unroll
        for (int hop = 0; hop < kPeers; ++hop) {
          const int peer = PeerAfter(a.rank, hop);
          if (peer == a.root) continue;
          StoreToPeer(slots.Out(peer, a.rank, rounds.Number(c + 1)) + i * kPackBytes, own[u]);
        }
        access.Store(recv, begin + i, own[u]);
      }
    });
  };

  const auto take_passed_on = [&](unsigned int c) {
    const unsigned long long begin = chunks.Begin(c);
    ForPacks(chunks.Size(c), are_whole(c), [&](auto access, unsigned int at) {
      Pack packs_of[kPeers][access.kUnroll];
      // The root has no share.
      const auto is_in = [&](int owner, unsigned int i) {
        return owner != a.root && i < size_of(owner, c);
      };
#pragma unroll
      for (int q = 0; q < kPeers; ++q) {
        const int owner = PeerAt(q, a.rank);
        const unsigned char* slot = slots.Out(a.rank, owner, rounds.Number(c + 1));
#pragma unroll
        for (int u = 0; u < access.kUnroll; ++u) {
          const unsigned int i = at + u * blockDim.x;
          if (is_in(owner, i)) packs_of[q][u] = LoadFromPeer(slot + i * kPackBytes);
        }
      }
#pragma unroll
      for (int q = 0; q < kPeers; ++q) {
        const int owner = PeerAt(q, a.rank);
#pragma unroll
        for (int u = 0; u < access.kUnroll; ++u) {
          const unsigned int i = at + u * blockDim.x;
          if (is_in(owner, i)) access.Store(recv, share_of(owner) + begin + i, packs_of[q][u]);
        }
      }
    });
  };

  const unsigned int count = chunks.count();
  for (unsigned int round = 0; round < count + 2; ++round) {
    if (is_root && round < count) send_chunk(round);
    if (round == 0 && !rounds.Begin()) return;
    if (round >= 1 && !rounds.WaitForFlags(round - 1)) return;
    if (!is_root && round >= 1 && round - 1 < count) pass_on(round - 1);
    if (!is_root && round >= 2) take_passed_on(round - 2);
    if (round <= count) rounds.SetFlags(round);
  }
  rounds.End(count + 1);
}
