// Leaves of a region's collective on their way between ranks by transport.cuh.
#pragma once

#include "region_leaf.cuh"
#include "transport.cuh"

namespace cotune::cuda {

// One leaf of the collective's operand, as the peers see it.
template <typename Access>
__device__ __forceinline__ void LoadSource(Access access, const SourceArguments& a,
                                           unsigned long long leaf, unsigned long long elements,
                                           Pack (&packs)[kLeafPacks]) {
  const Leaf<Reduced> loaded = LeafOfSource(access, a, leaf, elements);
#pragma unroll
  for (int p = 0; p < kLeafPacks; ++p) packs[p] = Transport::Sendable(PackOf(loaded, p));
}

// A thread waits for so many packs at once: more would not fit into its registers.
constexpr int kPacksAtOnceMax = 6;
constexpr bool kWaitsForWholeLeaves = kPeers * kLeafPacks <= kPacksAtOnceMax;

// Waits for the packs of one leaf of every peer that sends one. slot(peer, p): where pack p of the
// peer's leaf arrives; packs[p * kPeers + q] is that of peer q. False: gave up.
template <typename SlotOf, typename Sends>
__device__ __forceinline__ bool ReceiveLeaves(const KernelArguments& a, SlotOf slot, Sends sends,
                                              Pack (&packs)[kPeers * kLeafPacks], Launch& launch,
                                              bool is_last, SpinBudget& budget, bool compares) {
  const auto from = [&](int j) { return PeerAt(j % kPeers, a.rank); };
  if constexpr (kWaitsForWholeLeaves) {
    const auto slot_of = [&](int j) { return slot(from(j), j / kPeers); };
    return ReceiveFrom(
        from, slot_of, [&](int j) { return sends(j % kPeers); }, packs, launch, is_last, budget,
        compares);
  } else {
#pragma unroll
    for (int p = 0; p < kLeafPacks; ++p) {
      Pack of_peers[kPeers];
      const auto slot_of = [&](int q) { return slot(from(q), p); };
      if (!ReceiveFrom(from, slot_of, sends, of_peers, launch, is_last, budget,
                       compares && p == 0)) {
        return false;
      }
#pragma unroll
      for (int q = 0; q < kPeers; ++q) packs[p * kPeers + q] = of_peers[q];
    }
    return true;
  }
}

// Adds up one leaf of every peer and this rank's own: packs of the sum. False: gave up.
template <typename SlotOf>
__device__ __forceinline__ bool ReduceLeaf(const KernelArguments& a, SlotOf slot,
                                           const Pack (&own)[kLeafPacks], Pack (&sum)[kLeafPacks],
                                           Launch& launch, bool is_last, SpinBudget& budget,
                                           bool compares) {
  if constexpr (kWaitsForWholeLeaves) {
    Pack others[kPeers * kLeafPacks];
    if (!ReceiveLeaves(a, slot, Everybody{}, others, launch, is_last, budget, compares)) {
      return false;
    }
#pragma unroll
    for (int p = 0; p < kLeafPacks; ++p) {
      Pack of_peers[kPeers];
#pragma unroll
      for (int q = 0; q < kPeers; ++q) of_peers[q] = others[p * kPeers + q];
      sum[p] = ReduceInRankOrder(own[p], of_peers, a.rank);
    }
  } else {
    // Each pack is added up as it comes: those of a whole leaf would not fit into the registers.
#pragma unroll
    for (int p = 0; p < kLeafPacks; ++p) {
      Pack of_peers[kPeers];
      const auto slot_of = [&](int q) { return slot(PeerAt(q, a.rank), p); };
      if (!Receive(slot_of, Everybody{}, of_peers, a.rank, launch, is_last, budget,
                   compares && p == 0)) {
        return false;
      }
      sum[p] = ReduceInRankOrder(own[p], of_peers, a.rank);
    }
  }
  return true;
}

}  // namespace cotune::cuda
