// all_gather and all_to_all in one exchange: every rank pushes to each peer the block that is meant
// for it. COTUNE_COLLECTIVE_* says which.
#include "block_cut.cuh"
#include "transport.cuh"

using namespace cotune::cuda;

// all_to_all: the blocks for all ranks are loaded at once, where registers hold them.
constexpr bool kLoadsOwnWithOthers = COTUNE_UNROLL == 1 && kPeers < 4;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS, kResidentBlocks)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch(a);
  SpinBudget budget(a);
  Launch launch(a, budget);
  const unsigned long long packs = BlockCut::Packs(a);
  // The block of the send buffer that goes to `peer`, cut as it lies there.
  const auto block_for = [&](int peer) {
#if defined(COTUNE_COLLECTIVE_ALL_GATHER)
    peer = 0;
#endif
    return BlockCut(a, a.rank).Of(a.send, peer);
  };
  const auto block_from = [&](int peer) { return BlockCut(a, peer).Of(a.recv, peer); };
  const unsigned int threads = launch.threads();
  const unsigned long long step_packs = static_cast<unsigned long long>(threads) * COTUNE_UNROLL;
  for (unsigned long long base = 0; base < packs; base += step_packs, launch.NextStep()) {
    const auto index = [&](int u) {
      return launch.thread() + static_cast<unsigned long long>(u) * threads;
    };
    const auto is_in = [&](int u) { return base + index(u) < packs; };
    const auto slot_at = [&](int rank, int source, int u) {
      return launch.Scratch(rank) + (source * step_packs + index(u)) * Transport::kSlotBytes;
    };
    Pack own[COTUNE_UNROLL];
    const auto load_own = [&] {
      LoadTogether(own, is_in, [&](int u) {
        return PackPlace{block_for(a.rank), base + index(u)};
      });
    };
#if defined(COTUNE_COLLECTIVE_ALL_GATHER)
    load_own();
#endif
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      if (!is_in(u)) continue;
#if defined(COTUNE_COLLECTIVE_ALL_GATHER)
#pragma unroll
      for (int hop = 0; hop < kPeers; ++hop) {
        const int peer = PeerAfter(a.rank, hop);
        Transport::Send(slot_at(peer, a.rank, u), own[u]);
      }
#else
      const auto place = [&](int rank) { return PackPlace{block_for(rank), base + index(u)}; };
      if constexpr (kLoadsOwnWithOthers) {
        Pack packs[kPeers + 1];  // the last one is this rank's own
        LoadTogether(packs, Everybody{}, [&](int hop) {
          return place(hop < kPeers ? PeerAfter(a.rank, hop) : a.rank);
        });
#pragma unroll
        for (int hop = 0; hop < kPeers; ++hop) {
          Transport::Send(slot_at(PeerAfter(a.rank, hop), a.rank, u), packs[hop]);
        }
        own[u] = packs[kPeers];
      } else {
        SendTogether(a.rank, Everybody{}, place, [&](int peer, const Pack& p) {
          Transport::Send(slot_at(peer, a.rank, u), p);
        });
      }
#endif
    }
    // The own block waits for nobody, and nobody for it.
#if defined(COTUNE_COLLECTIVE_ALL_TO_ALL)
    if (!kLoadsOwnWithOthers) load_own();
#endif
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      if (is_in(u)) block_from(a.rank).Store(base + index(u), own[u]);
    }
    if (base == 0 && !launch.Begin()) return;
    if (base == 0) launch.Arrive();
    const bool is_last = base + step_packs >= packs;
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      if (!is_in(u)) continue;
      Pack others[kPeers];
      const auto slot = [&](int q) { return slot_at(a.rank, PeerAt(q, a.rank), u); };
      if (!Receive(slot, Everybody{}, others, a.rank, launch, is_last, budget, u == 0)) return;
#pragma unroll
      for (int q = 0; q < kPeers; ++q) {
        block_from(PeerAt(q, a.rank)).Store(base + index(u), others[q]);
      }
    }
  }
  launch.End();
}
