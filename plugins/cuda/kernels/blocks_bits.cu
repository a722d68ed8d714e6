// all_gather and all_to_all as in blocks.cu, in groups of packs with flag bits: nearly all of the
// link carries data, and there is no round of flags to wait for. COTUNE_COLLECTIVE_* says which.
#include "bits.cuh"
#include "block_cut.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch();
  Launch launch(a);
  Patience patience(a);
  const BitSlots slots(launch, a.rank);
  const unsigned long long packs = BlockCut::Packs(a);
  // What goes to `peer`, cut as it lies there.
  const auto block_for = [&](int peer) {
#if defined(COTUNE_COLLECTIVE_ALL_GATHER)
    peer = 0;
#endif
    return BlockCut(a, a.rank).Of(a.send, peer);
  };
  for (unsigned long long base = 0; base < packs; base += slots.step_packs(), launch.NextStep()) {
    const auto is_in = [&](int u) { return base + slots.Index(u) < packs; };
    const auto load_for = [&](int peer) {
      BitGroup group{};
      LoadTogether(group.packs, is_in, [&](int u) {
        return PackPlace{block_for(peer), base + slots.Index(u)};
      });
      return group;
    };
    const auto store_from = [&](int peer, const BitGroup& group) {
#pragma unroll
      for (int u = 0; u < COTUNE_UNROLL; ++u) {
        if (!is_in(u)) continue;
        BlockCut(a, peer).Of(a.recv, peer).Store(base + slots.Index(u), group.packs[u]);
      }
    };
    const bool has_work = is_in(0);
    if (has_work) {
      // The own block waits for nobody.
#if defined(COTUNE_COLLECTIVE_ALL_GATHER)
      BitGroup own = load_for(a.rank);
      own.Encode();
#pragma unroll
      for (int hop = 0; hop < kPeers; ++hop) {
        slots.Send(PeerAfter(a.rank, hop), own);
      }
      own.Decode();
#else
      // As many groups are loaded before the first is sent as registers allow.
      constexpr int kGroups = kPeers * COTUNE_UNROLL <= 12 ? kPeers : 1;
#pragma unroll
      for (int first = 0; first < kPeers; first += kGroups) {
        BitGroup groups[kGroups];
#pragma unroll
        for (int j = 0; j < kGroups; ++j) groups[j] = load_for(PeerAfter(a.rank, first + j));
#pragma unroll
        for (int j = 0; j < kGroups; ++j) {
          groups[j].Encode();
          slots.Send(PeerAfter(a.rank, first + j), groups[j]);
        }
      }
      const BitGroup own = load_for(a.rank);
#endif
      store_from(a.rank, own);
    }
    if (base == 0) launch.Arrive();
    if (!has_work) continue;
    BitGroup groups[kPeers];
    const auto peer_of = [&](int q) { return PeerAt(q, a.rank); };
    const bool is_last = base + slots.step_packs() >= packs;
    if (!ReceiveGroups<kPeers>(slots, peer_of, groups, launch.step(), is_last, patience)) {
      return;
    }
#pragma unroll
    for (int q = 0; q < kPeers; ++q) {
      groups[q].Decode();
      store_from(peer_of(q), groups[q]);
    }
  }
  launch.End();
}
