// broadcast in two exchanges: the data is cut into a share for each rank but the root, which sends
// to each its share; they pass it on to each other, each thread its packs of a step as soon as they
// are there. With n ranks, t_hop for one way over a link and t_0 for all else,
//   t = t_0 + 2 t_hop + bytes / link,
// as the root's link carries all data once, and every other link (n - 2) / (n - 1) of it meanwhile.
#include "pack_array.cuh"
#include "transport.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch(a);
  SpinBudget budget(a);
  Launch launch(a, budget);
  const PackArray send = ArrayAt(a.send, 0, a.count * kElementBytes);
  const PackArray recv = ArrayAt(a.recv, 0, a.count * kElementBytes);
  const unsigned long long packs = recv.packs();
  const unsigned long long share = (packs + kPeers - 1) / kPeers;
  const unsigned int threads = launch.threads();
  const unsigned long long step_packs = static_cast<unsigned long long>(threads) * COTUNE_UNROLL;
  const bool is_root = a.rank == a.root;
  const bool is_in_place = a.send == a.recv;
  constexpr int kOthers = kPeers - 1;
  static_assert(kOthers > 0, "of two ranks nobody is left to pass data on to");
  for (unsigned long long base = 0; base < share; base += step_packs, launch.NextStep()) {
    const bool is_last = base + step_packs >= share;
    const auto place = [&](int u) {
      return launch.thread() + static_cast<unsigned long long>(u) * threads;
    };
    // Every thread that has a pack in a share sends one for all shares, which may lie behind the
    // end of the data: so all hear from all, as the count of steps demands.
    const auto has = [&](int u) { return base + place(u) < share; };
    const auto index = [&](int owner, int u) {
      return static_cast<unsigned long long>(owner < a.root ? owner : owner - 1) * share + base +
             place(u);
    };
    // In the scratch of `rank`: what `source` sends.
    const auto slot_in = [&](int rank, int source, int u) {
      return launch.Scratch(rank) + (source * step_packs + place(u)) * Transport::kSlotBytes;
    };
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      if (!is_root || !has(u)) continue;
      SendTogether(
          a.rank, Everybody{},
          [&](int owner) {
            const unsigned long long i = index(owner, u);
            return PackPlace{send, i < packs ? i : packs - 1};
          },
          [&](int owner, const Pack& p) {
            Transport::Send(slot_in(owner, a.rank, u), p);
            if (!is_in_place && index(owner, u) < packs) recv.Store(index(owner, u), p);
          });
    }
    if (!is_root && has(0)) Transport::Send(slot_in(a.root, a.rank, 0), Pack{{0, 0, 0, 0}});
    if (base == 0 && !launch.Begin()) return;
    if (base == 0) launch.Arrive();
    if (!has(0)) continue;
    if (is_root) {
      Pack greetings[kPeers];
      const auto slot = [&](int q) { return slot_in(a.rank, PeerAt(q, a.rank), 0); };
      if (!Receive(slot, Everybody{}, greetings, a.rank, launch, is_last, budget, true)) return;
      continue;
    }
    // The ranks that are neither the root nor this one, beginning with the next.
    const auto other = [&](int j) {
      const int to_root = (a.root - a.rank + COTUNE_WORLD_SIZE) % COTUNE_WORLD_SIZE;
      return PeerAfter(a.rank, j + 1 < to_root ? j : j + 1);
    };
    Pack own[COTUNE_UNROLL];
    const auto root = [&](int /*u*/) { return a.root; };
    const auto from_root = [&](int u) { return slot_in(a.rank, a.root, u); };
    if (!ReceiveFrom(root, from_root, has, own, launch, is_last, budget, true)) return;
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      if (!has(u)) continue;
#pragma unroll
      for (int j = 0; j < kOthers; ++j) Transport::Send(slot_in(other(j), a.rank, u), own[u]);
      if (index(a.rank, u) < packs) recv.Store(index(a.rank, u), own[u]);
    }
    // For each pack, the packs of all other ranks.
    constexpr int kPacks = COTUNE_UNROLL * kOthers;
    const auto owner = [&](int k) { return other(k % kOthers); };
    const auto unroll = [&](int k) { return k / kOthers; };
    Pack passed_on[kPacks];
    const auto from_owner = [&](int k) { return slot_in(a.rank, owner(k), unroll(k)); };
    const auto has_pack = [&](int k) { return has(unroll(k)); };
    if (!ReceiveFrom(owner, from_owner, has_pack, passed_on, launch, is_last, budget)) {
      return;
    }
#pragma unroll
    for (int k = 0; k < kPacks; ++k) {
      const unsigned long long i = index(owner(k), unroll(k));
      if (has_pack(k) && i < packs) recv.Store(i, passed_on[k]);
    }
  }
  launch.End();
}
