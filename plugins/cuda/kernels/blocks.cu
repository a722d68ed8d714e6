// all_gather, all_to_all and reduce_scatter in one exchange: every rank pushes to each peer the block
// that is meant for it. COTUNE_COLLECTIVE_* says which.
#include "block_cut.cuh"
#include "transport.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch();
  Launch launch(a);
  Patience patience(a);
#if defined(COTUNE_COLLECTIVE_REDUCE_SCATTER)
  const unsigned long long block_bytes = a.count * kElementBytes;
  const unsigned long long packs = ArrayAt(a.recv, 0, block_bytes).packs();
#else
  const unsigned long long packs = BlockCut::Packs(a);
#endif
  // The block of the send buffer that goes to `peer`, cut as it lies there.
  const auto block_for = [&](int peer) {
#if defined(COTUNE_COLLECTIVE_ALL_GATHER)
    return BlockCut(a, a.rank).Of(a.send, 0);
#elif defined(COTUNE_COLLECTIVE_ALL_TO_ALL)
    return BlockCut(a, a.rank).Of(a.send, peer);
#else
    return ArrayAt(a.send, peer * block_bytes, block_bytes);
#endif
  };
  const unsigned int threads = launch.threads();
  const unsigned long long step_packs = static_cast<unsigned long long>(threads) * COTUNE_UNROLL;
  for (unsigned long long base = 0; base < packs; base += step_packs, launch.NextStep()) {
    const auto index = [&](int u) {
      return launch.thread() + static_cast<unsigned long long>(u) * threads;
    };
    const auto is_in = [&](int u) { return base + index(u) < packs; };
    Pack own[COTUNE_UNROLL];
    LoadTogether(own, is_in, [&](int u) { return PackPlace{block_for(a.rank), base + index(u)}; });
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      if (!is_in(u)) continue;
      own[u] = Transport::Sendable(own[u]);
      const auto send_to = [&](int peer, const Pack& p) {
        Transport::Send(launch.Scratch(peer) +
                            (a.rank * step_packs + index(u)) * Transport::kSlotBytes,
                        p);
      };
#if defined(COTUNE_COLLECTIVE_ALL_GATHER)
#pragma unroll
      for (int hop = 0; hop < kPeers; ++hop) send_to(PeerAfter(a.rank, hop), own[u]);
#else
      SendTogether(
          a.rank, Everybody{},
          [&](int peer) { return PackPlace{block_for(peer), base + index(u)}; },
          [&](int peer, const Pack& p) { send_to(peer, Transport::Sendable(p)); });
#endif
    }
    if (base == 0) launch.Arrive();
    unsigned char* scratch = launch.Scratch(a.rank);
    const bool is_last = base + step_packs >= packs;
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      const unsigned long long at = index(u);
      if (!is_in(u)) continue;
      Pack others[kPeers];
      const auto slot = [&](int q) {
        return scratch + (PeerAt(q, a.rank) * step_packs + at) * Transport::kSlotBytes;
      };
      if (!Receive(slot, Everybody{}, others, a.rank, launch.step(), is_last, patience)) return;
#if defined(COTUNE_COLLECTIVE_REDUCE_SCATTER)
      ArrayAt(a.recv, 0, block_bytes)
          .Store(base + at, ReduceInRankOrder(own[u], others, a.rank));
#else
      BlockCut(a, a.rank).Of(a.recv, a.rank).Store(base + at, own[u]);
#pragma unroll
      for (int q = 0; q < kPeers; ++q) {
        const int peer = PeerAt(q, a.rank);
        BlockCut(a, peer).Of(a.recv, peer).Store(base + at, others[q]);
      }
#endif
    }
  }
  launch.End();
}
