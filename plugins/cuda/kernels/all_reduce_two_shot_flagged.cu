// all_reduce in two exchanges, in chunks with flags: every rank adds up its share of all data and
// pushes the result to every peer. In a round a block sends chunk c, adds up chunk c - 1 and takes
// the results of chunk c - 2, so that there is data on the link while it waits.
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
  const unsigned long long packs = send.packs();
  const unsigned long long share = (packs + COTUNE_WORLD_SIZE - 1) / COTUNE_WORLD_SIZE;
  const Chunks chunks(share, a.chunk_bytes);
  if (chunks.count() == 0) return;
  const bool is_aligned = IsAligned(a.send) && IsAligned(a.recv);
  const bool ends_whole = send.end % kPackBytes == 0;
  const unsigned long long last = (packs - 1) % share;  // pack of its share

  // Packs of the chunk in the share of `owner`: the shares at the end may be short.
  const auto size_of = [&](int owner, unsigned int c) {
    const unsigned long long begin = owner * share;
    if (begin >= packs) return 0u;
    return chunks.SizeIn(packs - begin < share ? packs - begin : share, c);
  };
  // Whether none of them, in any share, is the incomplete pack at the end of the data.
  const auto are_whole = [&](unsigned int c) {
    const bool has_last = last >= chunks.Begin(c) && last - chunks.Begin(c) < chunks.Size(c);
    return is_aligned && (ends_whole || !has_last);
  };

  const auto send_chunk = [&](unsigned int c) {
    const unsigned long long begin = chunks.Begin(c);
    ForPacks(chunks.Size(c), are_whole(c), [&](auto access, unsigned int at) {
      Pack packs_for[kPeers][access.kUnroll];
#pragma unroll
      for (int hop = 0; hop < kPeers; ++hop) {
        const int owner = PeerAfter(a.rank, hop);
#pragma unroll
        for (int u = 0; u < access.kUnroll; ++u) {
          const unsigned int i = at + u * blockDim.x;
          if (i >= size_of(owner, c)) continue;
          packs_for[hop][u] = access.Load(send, owner * share + begin + i);
        }
      }
#pragma unroll
      for (int hop = 0; hop < kPeers; ++hop) {
        const int owner = PeerAfter(a.rank, hop);
        unsigned char* slot = slots.In(owner, a.rank, rounds.Number(c));
#pragma unroll
        for (int u = 0; u < access.kUnroll; ++u) {
          const unsigned int i = at + u * blockDim.x;
          if (i >= size_of(owner, c) || !rounds.IsOpen()) continue;
          StoreToPeer(slot + i * kPackBytes, packs_for[hop][u]);
        }
      }
    });
  };

  // Chunk c was sent in round c; its results are sent in round c + 1.
  const auto reduce_chunk = [&](unsigned int c) {
    const unsigned int size = size_of(a.rank, c);
    const unsigned long long begin = a.rank * share + chunks.Begin(c);
    ForPacks(size, are_whole(c), [&](auto access, unsigned int at) {
      Pack own[access.kUnroll];
      Pack others[access.kUnroll][kPeers];
#pragma unroll
      for (int u = 0; u < access.kUnroll; ++u) {
        const unsigned int i = at + u * blockDim.x;
        if (i >= size) continue;
        own[u] = access.Load(send, begin + i);
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
        const Pack result = ReduceInRankOrder(own[u], others[u], a.rank);
#pragma unroll
        for (int hop = 0; hop < kPeers; ++hop) {
          const int peer = PeerAfter(a.rank, hop);
          StoreToPeer(slots.Out(peer, a.rank, rounds.Number(c + 1)) + i * kPackBytes, result);
        }
        access.Store(recv, begin + i, result);
      }
    });
  };

  const auto take_results = [&](unsigned int c) {
    const unsigned long long begin = chunks.Begin(c);
    ForPacks(chunks.Size(c), are_whole(c), [&](auto access, unsigned int at) {
      Pack results[kPeers][access.kUnroll];
#pragma unroll
      for (int q = 0; q < kPeers; ++q) {
        const int owner = PeerAt(q, a.rank);
        const unsigned char* slot = slots.Out(a.rank, owner, rounds.Number(c + 1));
#pragma unroll
        for (int u = 0; u < access.kUnroll; ++u) {
          const unsigned int i = at + u * blockDim.x;
          if (i < size_of(owner, c)) results[q][u] = LoadFromPeer(slot + i * kPackBytes);
        }
      }
#pragma unroll
      for (int q = 0; q < kPeers; ++q) {
        const int owner = PeerAt(q, a.rank);
#pragma unroll
        for (int u = 0; u < access.kUnroll; ++u) {
          const unsigned int i = at + u * blockDim.x;
          if (i >= size_of(owner, c)) continue;
          access.Store(recv, owner * share + begin + i, results[q][u]);
        }
      }
    });
  };

  const unsigned int count = chunks.count();
  for (unsigned int round = 0; round < count + 2; ++round) {
    if (round < count) send_chunk(round);
    if (round == 0 && !rounds.Begin()) return;
    if (round >= 1 && !rounds.WaitForFlags(round - 1)) return;
    if (round >= 1 && round - 1 < count) reduce_chunk(round - 1);
    if (round >= 2) take_results(round - 2);
    if (round <= count) rounds.SetFlags(round);
  }
  rounds.End(count + 1);
}
