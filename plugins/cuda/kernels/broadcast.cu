// broadcast: the root pushes its data to every peer. In each step every other thread greets its
// peers instead: so all hear from all, as the count of steps demands.
#include "pack_array.cuh"
#include "transport.cuh"

using namespace cotune::cuda;

// Whether blocks arrive before they send. That is 2 to 8 % slower up to 1 MB on 2 H200, where
// waiting for the block's warps is better done while data is on its way, and with many packs a
// block up to 5 % faster from 2 MB on. Other kernels do not care.
constexpr bool kArrivesFirst = COTUNE_THREADS * COTUNE_UNROLL > 512;

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch(a);
  SpinBudget budget(a);
  Launch launch(a, budget);
  const PackArray send = ArrayAt(a.send, 0, a.count * kElementBytes);
  const PackArray recv = ArrayAt(a.recv, 0, a.count * kElementBytes);
  const unsigned long long packs = recv.packs();
  const unsigned int threads = launch.threads();
  const unsigned long long step_packs = static_cast<unsigned long long>(threads) * COTUNE_UNROLL;
  const bool is_root = a.rank == a.root;
  for (unsigned long long base = 0; base < packs; base += step_packs, launch.NextStep()) {
    if (base == 0 && kArrivesFirst) launch.Arrive();
    const bool has_data = base + launch.thread() < packs;
    unsigned char* scratch = nullptr;
    bool is_last = false;
    // The address depends on the count of steps. Kernels for small calls compute it behind the
    // sends, so that the root loads its data without waiting for that count.
    const auto prepare_receive = [&] {
      scratch = launch.Scratch(a.rank);
      is_last = base + step_packs >= packs;
    };
    if (kArrivesFirst) prepare_receive();
    const auto place = [&](int u) {
      return launch.thread() + static_cast<unsigned long long>(u) * threads;
    };
    // Slots of a step: the root's data, then the greetings of each rank.
    const auto data = [&](int u) { return place(u) * Transport::kSlotBytes; };
    const auto greeting = [&](int from) {
      return (step_packs + static_cast<unsigned long long>(from) * threads + launch.thread()) *
             Transport::kSlotBytes;
    };
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      if (!is_root || base + place(u) >= packs) continue;
      const Pack own = Transport::Sendable(send.Load(base + place(u)));
#pragma unroll
      for (int hop = 1; hop <= kPeers; ++hop) {
        const int peer = (a.rank + hop) % COTUNE_WORLD_SIZE;
        Transport::Send(launch.Scratch(peer) + data(u), own);
      }
      recv.Store(base + place(u), own);
    }
#pragma unroll
    for (int hop = 1; hop <= kPeers; ++hop) {
      const int peer = (a.rank + hop) % COTUNE_WORLD_SIZE;
      if (is_root || !has_data) continue;
      Transport::Send(launch.Scratch(peer) + greeting(a.rank), Pack{{0, 0, 0, 0}});
    }
    if (base == 0 && !launch.Begin()) return;
    if (base == 0 && !kArrivesFirst) launch.Arrive();
    if (!has_data) continue;
    if (!kArrivesFirst) prepare_receive();
    // The first pack of the root and the greetings of all others, which are there by then: one
    // wait.
    Pack values[kPeers];
    const auto slot = [&](int q) {
      const int peer = PeerAt(q, a.rank);
      return scratch + (peer == a.root ? data(0) : greeting(peer));
    };
    if (!Receive(slot, Everybody{}, values, a.rank, launch, is_last, budget, true)) return;
    if (is_root) continue;
#pragma unroll
    for (int q = 0; q < kPeers; ++q) {
      if (PeerAt(q, a.rank) == a.root) recv.Store(base + place(0), values[q]);
    }
    // One after the other: together they need more registers than two blocks a multiprocessor have.
#pragma unroll
    for (int u = 1; u < COTUNE_UNROLL; ++u) {
      if (base + place(u) >= packs) continue;
      Pack value[1];
      const auto root = [&](int /*j*/) { return a.root; };
      const auto root_slot = [&](int /*j*/) { return scratch + data(u); };
      if (!ReceiveFrom(root, root_slot, Everybody{}, value, launch, is_last, budget)) {
        return;
      }
      recv.Store(base + place(u), value[0]);
    }
  }
  launch.End();
}
