// all_reduce in one exchange (all_reduce_one_shot.cu) with elementwise operations before and after
// it: every rank computes its operand, pushes all of it to every peer, adds up by itself, and runs
// the operations on the sum while that is in registers.
#include "leaf_region.cuh"
#include "region.cuh"

using namespace cotune::cuda;

namespace {

// A thread with more operands on their way, or with those of a bucket, would spill registers if two
// blocks of 512 threads had to fit.
constexpr bool kHasFewOperands =
    !kIsBucket<SinkArguments> && kLeafPacks == 1 && sizeof(Sink::Operands) * COTUNE_UNROLL <= 64;
constexpr int kLeafResidentBlocks = kHasFewOperands ? kResidentBlocks : 0;

}  // namespace

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS, kLeafResidentBlocks)
    cotune_kernel(const __grid_constant__ KernelArguments a,
                  const __grid_constant__ SourceArguments source,
                  const __grid_constant__ SinkArguments sink) {
  BeginLaunch(a, source, sink);
  SpinBudget budget(a);
  Launch launch(a, budget);
  const unsigned long long leaves = (a.count + kLeafColumns - 1) / kLeafColumns;
  const unsigned int threads = launch.threads();
  const unsigned long long step_leaves = static_cast<unsigned long long>(threads) * COTUNE_UNROLL;
  for (unsigned long long base = 0; base < leaves; base += step_leaves, launch.NextStep()) {
    // Packs of one number in all leaves lie one after another, so that stores of a warp do.
    const auto slot_at = [&](int rank, int p, unsigned long long at) {
      const auto row = static_cast<unsigned long long>(rank * kLeafPacks + p);
      return (row * step_leaves + at) * Transport::kSlotBytes;
    };
    Pack own[COTUNE_UNROLL][kLeafPacks];
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      const unsigned long long at = launch.thread() + static_cast<unsigned long long>(u) * threads;
      if (base + at < leaves) LoadSource(AnyLeaf(), source, base + at, a.count, own[u]);
    }
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      const unsigned long long at = launch.thread() + static_cast<unsigned long long>(u) * threads;
      if (base + at >= leaves) continue;
#pragma unroll
      for (int hop = 1; hop <= kPeers; ++hop) {
        unsigned char* const to = launch.Scratch((a.rank + hop) % COTUNE_WORLD_SIZE);
#pragma unroll
        for (int p = 0; p < kLeafPacks; ++p)
          Transport::Send(to + slot_at(a.rank, p, at), own[u][p]);
      }
    }
    Sink::Operands operands[COTUNE_UNROLL];
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      const unsigned long long at = launch.thread() + static_cast<unsigned long long>(u) * threads;
      if (base + at < leaves) operands[u] = LoadSink(AnyLeaf(), sink, base + at, a.count);
    }
    if (base == 0 && !launch.Begin()) return;
    if (base == 0) launch.Arrive();
    unsigned char* scratch = launch.Scratch(a.rank);
    const bool is_last = base + step_leaves >= leaves;
#pragma unroll
    for (int u = 0; u < COTUNE_UNROLL; ++u) {
      const unsigned long long at = launch.thread() + static_cast<unsigned long long>(u) * threads;
      if (base + at >= leaves) continue;
      const auto slot = [&](int peer, int p) { return scratch + slot_at(peer, p, at); };
      Pack sum[kLeafPacks];
      if (!ReduceLeaf(a, slot, own[u], sum, launch, is_last, budget, u == 0)) return;
      StoreSink(AnyLeaf(), sink, base + at, a.count, operands[u], sum);
    }
  }
  launch.End();
}
