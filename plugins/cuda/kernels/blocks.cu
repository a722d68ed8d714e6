// all_gather, all_to_all and reduce_scatter in one exchange: every rank pushes to each peer the block
// that is meant for it. COTUNE_COLLECTIVE_* says which.
#include "element.cuh"
#include "transport.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch();
  Launch launch(a);
  Patience patience(a);
  const unsigned long long block_bytes = a.count * kElementBytes;
  // The block of the send buffer that goes to `peer`, and the place of what comes from it.
  const auto block_for = [&](int peer) {
#if defined(COTUNE_COLLECTIVE_ALL_GATHER)
    return ArrayAt(a.send, 0, block_bytes);
#else
    return ArrayAt(a.send, peer * block_bytes, block_bytes);
#endif
  };
  const unsigned long long packs = block_for(0).packs();
  const unsigned int threads = launch.threads();
  const unsigned long long step_packs = static_cast<unsigned long long>(threads) * COTUNE_UNROLL;
  for (unsigned long long base = 0; base < packs; base += step_packs, launch.NextStep()) {
    Pack own[COTUNE_UNROLL];
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      const unsigned long long at = launch.thread() + static_cast<unsigned long long>(u) * threads;
      if (base + at >= packs) continue;
      own[u] = Transport::Sendable(block_for(a.rank).Load(base + at));
#pragma unroll
      for (int hop = 1; hop <= kPeers; ++hop) {
        const int peer = (a.rank + hop) % COTUNE_WORLD_SIZE;
#if defined(COTUNE_COLLECTIVE_ALL_GATHER)
        const Pack& outgoing = own[u];
#else
        const Pack outgoing = Transport::Sendable(block_for(peer).Load(base + at));
#endif
        Transport::Send(
            launch.Scratch(peer) + (a.rank * step_packs + at) * Transport::kSlotBytes, outgoing);
      }
    }
    if (base == 0) launch.Arrive();
    unsigned char* scratch = launch.Scratch(a.rank);
    const bool is_last = base + step_packs >= packs;
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      const unsigned long long at = launch.thread() + static_cast<unsigned long long>(u) * threads;
      if (base + at >= packs) continue;
      Pack others[kPeers];
      const auto slot = [&](int q) {
        return scratch + (PeerAt(q, a.rank) * step_packs + at) * Transport::kSlotBytes;
      };
      if (!Receive(slot, Everybody{}, others, a.rank, launch.step(), is_last, patience)) return;
#if defined(COTUNE_COLLECTIVE_REDUCE_SCATTER)
      ArrayAt(a.recv, 0, block_bytes)
          .Store(base + at, ReduceInRankOrder(own[u], others, a.rank));
#else
      ArrayAt(a.recv, a.rank * block_bytes, block_bytes).Store(base + at, own[u]);
#pragma unroll
      for (int q = 0; q < kPeers; ++q) {
        ArrayAt(a.recv, PeerAt(q, a.rank) * block_bytes, block_bytes).Store(base + at, others[q]);
      }
#endif
    }
  }
  launch.End();
}
