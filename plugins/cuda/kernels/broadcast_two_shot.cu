// broadcast in two exchanges: the data is cut into a share for each rank but the root, which sends
// to each its share; they pass it on to each other, pack by pack, as soon as it is there. With n
// ranks, t_hop for one way over a link and t_0 for all else,
//   t = t_0 + 2 t_hop + bytes / link,
// as the root's link carries all data once, and every other link (n - 2) / (n - 1) of it meanwhile.
#include "pack_array.cuh"
#include "transport.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch();
  Launch launch(a);
  Patience patience(a);
  const PackArray send = ArrayAt(a.send, 0, a.count * kElementBytes);
  const PackArray recv = ArrayAt(a.recv, 0, a.count * kElementBytes);
  const unsigned long long packs = recv.packs();
  const unsigned long long share = (packs + kPeers - 1) / kPeers;
  const unsigned int threads = launch.threads();
  const unsigned long long step_packs = static_cast<unsigned long long>(threads) * COTUNE_UNROLL;
  const bool is_root = a.rank == a.root;
  const bool is_in_place = a.send == a.recv;
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
    if (base == 0) launch.Arrive();
    if (!has(0)) continue;
    if (is_root) {
      Pack greetings[kPeers];
      const auto slot = [&](int q) { return slot_in(a.rank, PeerAt(q, a.rank), 0); };
      if (!Receive(slot, Everybody{}, greetings, a.rank, launch.step(), is_last, patience)) return;
      continue;
    }
    constexpr int kOthers = kPeers - 1;
    // The ranks that are neither the root nor this one, beginning with the next.
    const auto other = [&](int j) {
      const int to_root = (a.root - a.rank + COTUNE_WORLD_SIZE) % COTUNE_WORLD_SIZE;
      return PeerAfter(a.rank, j + 1 < to_root ? j : j + 1);
    };
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      if (!has(u)) continue;
      Pack own[1];
      const auto root = [&](int /*j*/) { return a.root; };
      const auto slot = [&](int /*j*/) { return slot_in(a.rank, a.root, u); };
      if (!ReceiveFrom(root, slot, Everybody{}, own, launch.step(), is_last, patience)) return;
#pragma unroll
      for (int j = 0; j < kOthers; ++j) Transport::Send(slot_in(other(j), a.rank, u), own[0]);
      if (index(a.rank, u) < packs) recv.Store(index(a.rank, u), own[0]);
    }
    if (kOthers == 0) continue;
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      if (!has(u)) continue;
      Pack passed_on[kOthers > 0 ? kOthers : 1];
      const auto slot = [&](int j) { return slot_in(a.rank, other(j), u); };
      if (!ReceiveFrom(other, slot, Everybody{}, passed_on, launch.step(), is_last, patience)) {
        return;
      }
#pragma unroll
      for (int j = 0; j < kOthers; ++j) {
        if (index(other(j), u) < packs) recv.Store(index(other(j), u), passed_on[j]);
      }
    }
  }
  launch.End();
}
