// all_reduce_one_shot_leaves.cu for large data: a thread waits for all its leaves of a step at
// once, and then reads back at once the slots that it has emptied. A launch decides once if all
// leaves are aligned and full: loads are in flight together then, which a branch for each leaf
// would prevent. (Small data takes longer so, because the first load waits for what decides.)
#include "leaf_region.cuh"
#include "region.cuh"

using namespace cotune::cuda;

namespace {

// A thread with more operands on their way, or with those of a bucket, would spill registers if two
// blocks of 512 threads had to fit.
constexpr bool kHasFewOperands =
    !kIsBucket<SinkArguments> && kLeafPacks == 1 && sizeof(Sink::Operands) * COTUNE_UNROLL <= 64;
constexpr int kLeafResidentBlocks = kHasFewOperands ? kResidentBlocks : 0;

using LeafPacks = Pack[kLeafPacks];

// The leaves of a step: leaf u of the thread, its slots, and whether it exists.
struct StepLeaves {
  unsigned long long base;
  unsigned long long end;
  unsigned int thread;
  unsigned int threads;

  __device__ __forceinline__ unsigned long long At(int u) const {
    return thread + static_cast<unsigned long long>(u) * threads;
  }
  __device__ __forceinline__ bool IsThere(int u) const { return base + At(u) < end; }
  // Packs of one number in all leaves lie one after another, so that stores of a warp do.
  __device__ __forceinline__ unsigned long long Slot(int rank, int p, int u) const {
    const auto row = static_cast<unsigned long long>(rank * kLeafPacks + p);
    const unsigned long long leaves = static_cast<unsigned long long>(threads) * COTUNE_UNROLL;
    return (row * leaves + At(u)) * Transport::kSlotBytes;
  }
};

// Adds up all leaves of the thread as those of all peers arrive. False: gave up.
__device__ __forceinline__ bool ReduceLeaves(const KernelArguments& a, const StepLeaves& leaves,
                                             LeafPacks (&packs)[COTUNE_UNROLL], Launch& launch,
                                             bool is_last, SpinBudget& budget) {
  constexpr int kPacksOfLeaf = kPeers * kLeafPacks;
  unsigned char* const scratch = launch.Scratch(a.rank);
  Pack others[COTUNE_UNROLL * kPacksOfLeaf];
  const auto from = [&](int j) { return PeerAt(j % kPeers, a.rank); };
  const auto slot = [&](int j) {
    return scratch + leaves.Slot(from(j), j / kPeers % kLeafPacks, j / kPacksOfLeaf);
  };
  const auto sends = [&](int j) { return leaves.IsThere(j / kPacksOfLeaf); };
  if (!ReceiveFrom(from, slot, sends, others, launch, is_last, budget, true)) return false;
#pragma unroll
  for (int u = 0; u < COTUNE_UNROLL; ++u) {
#pragma unroll
    for (int p = 0; p < kLeafPacks; ++p) {
      Pack of_peers[kPeers];
#pragma unroll
      for (int q = 0; q < kPeers; ++q) of_peers[q] = others[u * kPacksOfLeaf + p * kPeers + q];
      packs[u][p] = ReduceInRankOrder(packs[u][p], of_peers, a.rank);
    }
  }
  return true;
}

template <typename Access>
__device__ __forceinline__ void Run(const KernelArguments& a, const SourceArguments& source,
                                    const SinkArguments& sink) {
  SpinBudget budget(a);
  Launch launch(a, budget);
  StepLeaves leaves{0, (a.count + kLeafColumns - 1) / kLeafColumns, launch.thread(),
                    launch.threads()};
  const unsigned long long step_leaves =
      static_cast<unsigned long long>(launch.threads()) * COTUNE_UNROLL;
  for (; leaves.base < leaves.end; leaves.base += step_leaves, launch.NextStep()) {
    LeafPacks packs[COTUNE_UNROLL];
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      if (!leaves.IsThere(u)) continue;
      LoadSource(Access(), source, leaves.base + leaves.At(u), a.count, packs[u]);
    }
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      if (!leaves.IsThere(u)) continue;
#pragma unroll
      for (int hop = 1; hop <= kPeers; ++hop) {
        unsigned char* const to = launch.Scratch((a.rank + hop) % COTUNE_WORLD_SIZE);
#pragma unroll
        for (int p = 0; p < kLeafPacks; ++p) {
          Transport::Send(to + leaves.Slot(a.rank, p, u), packs[u][p]);
        }
      }
    }
    Sink::Operands operands[COTUNE_UNROLL];
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      if (!leaves.IsThere(u)) continue;
      operands[u] = LoadSink(Access(), sink, leaves.base + leaves.At(u), a.count);
    }
    if (leaves.base == 0 && !launch.Begin()) return;
    if (leaves.base == 0) launch.Arrive();
    const bool is_last = leaves.base + step_leaves >= leaves.end;
    if (!leaves.IsThere(0)) continue;
    if (!ReduceLeaves(a, leaves, packs, launch, is_last, budget)) return;
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      if (!leaves.IsThere(u)) continue;
      StoreSink(Access(), sink, leaves.base + leaves.At(u), a.count, operands[u], packs[u]);
    }
  }
  launch.End();
}

}  // namespace

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS, kLeafResidentBlocks)
    cotune_kernel(const __grid_constant__ KernelArguments a,
                  const __grid_constant__ SourceArguments source,
                  const __grid_constant__ SinkArguments sink) {
  BeginLaunch(a, source, sink);
  const unsigned long long leaves = (a.count + kLeafColumns - 1) / kLeafColumns;
  if (source.is_aligned != 0 && sink.is_aligned != 0 && AreLeavesFull(source, a.count, 0, leaves)) {
    Run<FullLeaf>(a, source, sink);
  } else {
    Run<AnyLeaf>(a, source, sink);
  }
}
