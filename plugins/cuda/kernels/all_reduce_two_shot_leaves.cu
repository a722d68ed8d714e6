// all_reduce in two exchanges (all_reduce_two_shot.cu) with elementwise operations before and after
// it: every rank adds up its share of the computed operands and pushes the sum to every peer. Each
// rank runs the operations that follow on all leaves of the sum, as they arrive.
#include "leaf_region.cuh"
#include "region.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS)
    cotune_kernel(const __grid_constant__ KernelArguments a,
                  const __grid_constant__ SourceArguments source,
                  const __grid_constant__ SinkArguments sink) {
  BeginLaunch(a, source, sink);
  SpinBudget budget(a);
  Launch launch(a, budget);
  const unsigned long long leaves = (a.count + kLeafColumns - 1) / kLeafColumns;
  const unsigned long long share = (leaves + COTUNE_WORLD_SIZE - 1) / COTUNE_WORLD_SIZE;
  const unsigned int threads = launch.threads();
  const unsigned long long step_leaves = static_cast<unsigned long long>(threads) * COTUNE_UNROLL;
  // Scratch of a step: parts of this rank's share by sender, then sums by owner.
  const unsigned long long sums =
      COTUNE_WORLD_SIZE * kLeafPacks * step_leaves * Transport::kSlotBytes;
  for (unsigned long long base = 0; base < share; base += step_leaves, launch.NextStep()) {
    unsigned char* scratch = launch.Scratch(a.rank);
    const bool is_last = base + step_leaves >= share;
    const auto slot_at = [&](int rank, int p, unsigned long long at) {
      const auto row = static_cast<unsigned long long>(rank * kLeafPacks + p);
      return (row * step_leaves + at) * Transport::kSlotBytes;
    };
    // Leaf `at` of this step in the share of `owner`: its index, and whether it exists.
    const auto index = [&](int owner, unsigned long long at) { return owner * share + base + at; };
    const auto is_in = [&](int owner, unsigned long long at) {
      return base + at < share && index(owner, at) < leaves;
    };
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      const unsigned long long at = launch.thread() + static_cast<unsigned long long>(u) * threads;
#pragma unroll
      for (int hop = 1; hop <= kPeers; ++hop) {
        const int peer = (a.rank + hop) % COTUNE_WORLD_SIZE;
        if (!is_in(peer, at)) continue;
        Pack packs[kLeafPacks];
        LoadSource(AnyLeaf(), source, index(peer, at), a.count, packs);
        unsigned char* const to = launch.Scratch(peer);
#pragma unroll
        for (int p = 0; p < kLeafPacks; ++p) Transport::Send(to + slot_at(a.rank, p, at), packs[p]);
      }
    }
    if (base == 0 && !launch.Begin()) return;
    if (base == 0) launch.Arrive();
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      const unsigned long long at = launch.thread() + static_cast<unsigned long long>(u) * threads;
      if (!is_in(a.rank, at)) continue;
      Pack own[kLeafPacks];
      LoadSource(AnyLeaf(), source, index(a.rank, at), a.count, own);
      const Sink::Operands operands = LoadSink(AnyLeaf(), sink, index(a.rank, at), a.count);
      const auto slot = [&](int peer, int p) { return scratch + slot_at(peer, p, at); };
      Pack sum[kLeafPacks];
      if (!ReduceLeaf(a, slot, own, sum, launch, is_last, budget, u == 0)) return;
#pragma unroll
      for (int p = 0; p < kLeafPacks; ++p) sum[p] = Transport::Sendable(sum[p]);
#pragma unroll
      for (int hop = 1; hop <= kPeers; ++hop) {
        unsigned char* const to = launch.Scratch((a.rank + hop) % COTUNE_WORLD_SIZE) + sums;
#pragma unroll
        for (int p = 0; p < kLeafPacks; ++p) Transport::Send(to + slot_at(a.rank, p, at), sum[p]);
      }
      StoreSink(AnyLeaf(), sink, index(a.rank, at), a.count, operands, sum);
    }
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      const unsigned long long at = launch.thread() + static_cast<unsigned long long>(u) * threads;
      // While a thread waits, its registers have room for the operands of few peers only.
      constexpr bool kLoadsEarly = kPeers <= 3;
      Sink::Operands operands[kPeers];
#pragma unroll
      for (int q = 0; q < kPeers; ++q) {
        const int owner = PeerAt(q, a.rank);
        if (kLoadsEarly && is_in(owner, at))
          operands[q] = LoadSink(AnyLeaf(), sink, index(owner, at), a.count);
      }
      Pack received[kPeers * kLeafPacks];
      const auto slot = [&](int peer, int p) { return scratch + sums + slot_at(peer, p, at); };
      const auto sends = [&](int q) { return is_in(PeerAt(q, a.rank), at); };
      if (!ReceiveLeaves(a, slot, sends, received, launch, is_last, budget, false)) return;
#pragma unroll
      for (int q = 0; q < kPeers; ++q) {
        if (!sends(q)) continue;
        const unsigned long long leaf = index(PeerAt(q, a.rank), at);
        if (!kLoadsEarly) operands[q] = LoadSink(AnyLeaf(), sink, leaf, a.count);
        Pack sum[kLeafPacks];
#pragma unroll
        for (int p = 0; p < kLeafPacks; ++p) sum[p] = received[p * kPeers + q];
        StoreSink(AnyLeaf(), sink, leaf, a.count, operands[q], sum);
      }
    }
  }
  launch.End();
}
