// broadcast: the root pushes its data to every peer. In each step every other thread greets its peers
// instead: so all hear from all, as the count of steps demands.
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
  const unsigned int threads = launch.threads();
  const unsigned long long step_packs = static_cast<unsigned long long>(threads) * COTUNE_UNROLL;
  const bool is_root = a.rank == a.root;
  for (unsigned long long base = 0; base < packs; base += step_packs, launch.NextStep()) {
    if (base == 0) launch.Arrive();
    if (base + launch.thread() >= packs) continue;
    unsigned char* scratch = launch.Scratch(a.rank);
    const bool is_last = base + step_packs >= packs;
    // Slots of a step: the root's data, then the greetings of each rank.
    const auto greeting = [&](int from) {
      return (step_packs + static_cast<unsigned long long>(from) * threads + launch.thread()) *
             Transport::kSlotBytes;
    };
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      const unsigned long long at = launch.thread() + static_cast<unsigned long long>(u) * threads;
      if (!is_root || base + at >= packs) continue;
      const Pack own = Transport::Sendable(send.Load(base + at));
#pragma unroll
      for (int hop = 1; hop <= kPeers; ++hop) {
        const int peer = (a.rank + hop) % COTUNE_WORLD_SIZE;
        Transport::Send(launch.Scratch(peer) + at * Transport::kSlotBytes, own);
      }
      recv.Store(base + at, own);
    }
#pragma unroll
    for (int hop = 1; hop <= kPeers; ++hop) {
      const int peer = (a.rank + hop) % COTUNE_WORLD_SIZE;
      if (!is_root) Transport::Send(launch.Scratch(peer) + greeting(a.rank), Pack{{0, 0, 0, 0}});
    }
    Pack values[kPeers];
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      const unsigned long long at = launch.thread() + static_cast<unsigned long long>(u) * threads;
      if (is_root || base + at >= packs) continue;
      const auto slot = [&](int /*q*/) { return scratch + at * Transport::kSlotBytes; };
      const auto sends = [&](int q) { return PeerAt(q, a.rank) == a.root; };
      if (!Receive(slot, sends, values, a.rank, launch.step(), is_last, patience)) return;
      // The same slot was read for every peer, but only the root's reading was waited for.
#pragma unroll
      for (int q = 0; q < kPeers; ++q) {
        if (sends(q)) recv.Store(base + at, values[q]);
      }
    }
    const auto slot = [&](int q) { return scratch + greeting(PeerAt(q, a.rank)); };
    const auto sends = [&](int q) { return PeerAt(q, a.rank) != a.root; };
    if (!Receive(slot, sends, values, a.rank, launch.step(), is_last, patience)) return;
  }
  launch.End();
}
