// broadcast in groups of packs with flag bits: the data is cut into a share for each rank but the
// root, which sends to each its share; they pass it on to each other, group by group, as soon as it
// is there. With n ranks, t_hop for one way over a link and t_0 for all else,
//   t = t_0 + 2 t_hop + bytes * (1 + 1 / (2 * COTUNE_UNROLL)) / link,
// as the root's link carries all data once, and every other link (n - 2) / (n - 1) of it meanwhile.
#include "bits.cuh"

using namespace cotune::cuda;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch();
  Launch launch(a);
  Patience patience(a);
  const BitSlots slots(launch, a.rank);
  const PackArray send = ArrayAt(a.send, 0, a.count * kElementBytes);
  const PackArray recv = ArrayAt(a.recv, 0, a.count * kElementBytes);
  const unsigned long long packs = recv.packs();
  const unsigned long long share = (packs + kPeers - 1) / kPeers;
  const bool is_root = a.rank == a.root;
  for (unsigned long long base = 0; base < share; base += slots.step_packs(), launch.NextStep()) {
    if (base == 0) launch.Arrive();
    // Every thread that has packs in a share sends a group for all shares, whose packs may lie
    // behind the end of the data: so all hear from all, as the count of steps demands.
    if (base + slots.Index(0) >= share) continue;
    const bool is_last = base + slots.step_packs() >= share;
    const auto index = [&](int owner, int u) {
      return static_cast<unsigned long long>(owner < a.root ? owner : owner - 1) * share + base +
             slots.Index(u);
    };
    const auto is_in = [&](int owner, int u) {
      return base + slots.Index(u) < share && index(owner, u) < packs;
    };
    const auto store = [&](int owner, const BitGroup& group) {
#pragma unroll
      for (int u = 0; u < COTUNE_UNROLL; ++u) {
        if (is_in(owner, u)) recv.Store(index(owner, u), group.packs[u]);
      }
    };
    if (is_root) {
      // As many groups are loaded before the first is sent as registers allow.
      constexpr int kGroups = kPeers * COTUNE_UNROLL <= 12 ? kPeers : 1;
      const bool is_in_place = a.send == a.recv;
#pragma unroll
      for (int first = 0; first < kPeers; first += kGroups) {
        BitGroup groups[kGroups] = {};
#pragma unroll
        for (int j = 0; j < kGroups; ++j) {
          const int owner = PeerAfter(a.rank, first + j);
          LoadTogether(
              groups[j].packs, [&](int u) { return is_in(owner, u); },
              [&](int u) {
                return PackPlace{send, index(owner, u)};
              });
        }
#pragma unroll
        for (int j = 0; j < kGroups; ++j) {
          const int owner = PeerAfter(a.rank, first + j);
          groups[j].Encode();
          slots.Send(owner, groups[j]);
          groups[j].Decode();
          if (!is_in_place) store(owner, groups[j]);
        }
      }
      if (!ReceiveGreetings(slots, a.rank, launch.step(), is_last, patience)) return;
      continue;
    }
    slots.SendGreeting(a.root);
    BitGroup own[1];
    const auto root = [&](int /*j*/) { return a.root; };
    if (!ReceiveGroups<1>(slots, root, own, launch.step(), is_last, patience)) return;
    constexpr int kOthers = kPeers - 1;
    // The ranks that are neither the root nor this one, beginning with the next.
    const auto other = [&](int j) {
      const int to_root = (a.root - a.rank + COTUNE_WORLD_SIZE) % COTUNE_WORLD_SIZE;
      return PeerAfter(a.rank, j + 1 < to_root ? j : j + 1);
    };
#pragma unroll
    for (int j = 0; j < kOthers; ++j) slots.Send(other(j), own[0]);
    own[0].Decode();
    store(a.rank, own[0]);
    if (kOthers == 0) continue;
    BitGroup groups[kOthers > 0 ? kOthers : 1];
    if (!ReceiveGroups<kOthers>(slots, other, groups, launch.step(), is_last, patience)) {
      return;
    }
#pragma unroll
    for (int j = 0; j < kOthers; ++j) {
      groups[j].Decode();
      store(other(j), groups[j]);
    }
  }
  launch.End();
}
