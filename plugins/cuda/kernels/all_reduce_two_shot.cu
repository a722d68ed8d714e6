// all_reduce in two exchanges without a barrier: every rank adds up its share of all data and
// pushes the result to every peer. Moves the least data that can be moved.
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
  const unsigned long long share = (packs + COTUNE_WORLD_SIZE - 1) / COTUNE_WORLD_SIZE;
  const unsigned int threads = launch.threads();
  const unsigned long long step_packs = static_cast<unsigned long long>(threads) * COTUNE_UNROLL;
  // Scratch of a step: parts of this rank's share by sender, then results by owner.
  const unsigned long long results = COTUNE_WORLD_SIZE * step_packs;
  for (unsigned long long base = 0; base < share; base += step_packs, launch.NextStep()) {
    unsigned char* scratch = launch.Scratch(a.rank);
    const bool is_last = base + step_packs >= share;
    // Whether pack `at` of this step lies in the share of `owner`, and where.
    const auto index = [&](int owner, unsigned long long at) { return owner * share + base + at; };
    const auto is_in = [&](int owner, unsigned long long at) {
      return base + at < share && index(owner, at) < packs;
    };
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      const unsigned long long at = launch.thread() + static_cast<unsigned long long>(u) * threads;
      SendTogether(
          a.rank, [&](int peer) { return is_in(peer, at); },
          [&](int peer) {
            return PackPlace{send, index(peer, at)};
          },
          [&](int peer, const Pack& p) {
            unsigned char* to = launch.Scratch(peer);
            Transport::Send(to + (a.rank * step_packs + at) * Transport::kSlotBytes,
                            Transport::Sendable(p));
          });
    }
    if (base == 0 && !launch.Begin()) return;
    if (base == 0) launch.Arrive();
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      const unsigned long long at = launch.thread() + static_cast<unsigned long long>(u) * threads;
      if (!is_in(a.rank, at)) continue;
      const Pack own = Transport::Sendable(send.Load(index(a.rank, at)));
      Pack others[kPeers];
      const auto slot = [&](int q) {
        return scratch + (PeerAt(q, a.rank) * step_packs + at) * Transport::kSlotBytes;
      };
      if (!Receive(slot, Everybody{}, others, a.rank, launch, is_last, budget, u == 0)) {
        return;
      }
      const Pack result = Transport::Sendable(ReduceInRankOrder(own, others, a.rank));
#pragma unroll
      for (int hop = 1; hop <= kPeers; ++hop) {
        const int peer = (a.rank + hop) % COTUNE_WORLD_SIZE;
        Transport::Send(
            launch.Scratch(peer) + (results + a.rank * step_packs + at) * Transport::kSlotBytes,
            result);
      }
      recv.Store(index(a.rank, at), result);
    }
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      const unsigned long long at = launch.thread() + static_cast<unsigned long long>(u) * threads;
      Pack results_of[kPeers];
      const auto slot = [&](int q) {
        return scratch + (results + PeerAt(q, a.rank) * step_packs + at) * Transport::kSlotBytes;
      };
      const auto sends = [&](int q) { return is_in(PeerAt(q, a.rank), at); };
      if (!Receive(slot, sends, results_of, a.rank, launch, is_last, budget)) return;
#pragma unroll
      for (int q = 0; q < kPeers; ++q) {
        if (sends(q)) recv.Store(index(PeerAt(q, a.rank), at), results_of[q]);
      }
    }
  }
  launch.End();
}
