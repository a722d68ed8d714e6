// all_reduce in one exchange: every rank pushes all of its data to every peer and adds up by
// itself. Fastest for small sizes: one way over the link.
#include "pack_array.cuh"
#include "transport.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS, kResidentBlocks)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch(a);
  SpinBudget budget(a);
  Launch launch(a, budget);
  const PackArray send = ArrayAt(a.send, 0, a.count * kElementBytes);
  const PackArray recv = ArrayAt(a.recv, 0, a.count * kElementBytes);
  const unsigned long long packs = send.packs();
  const unsigned int threads = launch.threads();
  const unsigned long long step_packs = static_cast<unsigned long long>(threads) * COTUNE_UNROLL;
  for (unsigned long long base = 0; base < packs; base += step_packs, launch.NextStep()) {
    Pack own[COTUNE_UNROLL];
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      const unsigned long long at = launch.thread() + static_cast<unsigned long long>(u) * threads;
      if (base + at < packs) own[u] = Transport::Sendable(send.Load(base + at));
    }
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      const unsigned long long at = launch.thread() + static_cast<unsigned long long>(u) * threads;
      if (base + at >= packs) continue;
#pragma unroll
      for (int hop = 1; hop <= kPeers; ++hop) {
        const int peer = (a.rank + hop) % COTUNE_WORLD_SIZE;
        Transport::Send(launch.Scratch(peer) + (a.rank * step_packs + at) * Transport::kSlotBytes,
                        own[u]);
      }
    }
    if (base == 0 && !launch.Begin()) return;
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
      if (!Receive(slot, Everybody{}, others, a.rank, launch, is_last, budget, u == 0)) return;
      recv.Store(base + at, ReduceInRankOrder(own[u], others, a.rank));
    }
  }
  launch.End();
}
