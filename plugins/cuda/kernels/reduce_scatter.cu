// reduce_scatter in one exchange: every rank pushes to each peer the block that it adds up.
#include "pack_array.cuh"
#include "transport.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS, kResidentBlocks)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch(a);
  SpinBudget budget(a);
  Launch launch(a, budget);
  const unsigned long long block_bytes = a.count * kElementBytes;
  const PackArray recv = ArrayAt(a.recv, 0, block_bytes);
  const unsigned long long packs = recv.packs();
  // The block of the send buffer that goes to `peer`.
  const auto block_for = [&](int peer) { return ArrayAt(a.send, peer * block_bytes, block_bytes); };
  const unsigned int threads = launch.threads();
  const unsigned long long step_packs = static_cast<unsigned long long>(threads) * COTUNE_UNROLL;
  for (unsigned long long base = 0; base < packs; base += step_packs, launch.NextStep()) {
    const auto index = [&](int u) {
      return launch.thread() + static_cast<unsigned long long>(u) * threads;
    };
    const auto is_in = [&](int u) { return base + index(u) < packs; };
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      if (!is_in(u)) continue;
      SendTogether(
          a.rank, Everybody{},
          [&](int peer) {
            return PackPlace{block_for(peer), base + index(u)};
          },
          [&](int peer, const Pack& p) {
            Transport::Send(
                launch.Scratch(peer) + (a.rank * step_packs + index(u)) * Transport::kSlotBytes,
                Transport::Sendable(p));
          });
    }
    // The own block waits for nobody: it is read while the others are on their way.
    Pack own[COTUNE_UNROLL];
    LoadTogether(own, is_in, [&](int u) { return PackPlace{block_for(a.rank), base + index(u)}; });
    if (base == 0 && !launch.Begin()) return;
    if (base == 0) launch.Arrive();
    unsigned char* scratch = launch.Scratch(a.rank);
    const bool is_last = base + step_packs >= packs;
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      if (!is_in(u)) continue;
      Pack others[kPeers];
      const auto slot = [&](int q) {
        return scratch + (PeerAt(q, a.rank) * step_packs + index(u)) * Transport::kSlotBytes;
      };
      if (!Receive(slot, Everybody{}, others, a.rank, launch, is_last, budget, u == 0)) return;
      recv.Store(base + index(u), ReduceInRankOrder(Transport::Sendable(own[u]), others, a.rank));
    }
  }
  launch.End();
}
