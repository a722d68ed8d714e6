// The kernel around the copies of copy engines that only move data: all ranks wait for each other,
// or this rank copies the data that stays on its GPU.
#include "chunks.cuh"
#include "rounds.cuh"

using namespace cotune::cuda;

__device__ __forceinline__ void CopyHere(const KernelArguments& a) {
  const unsigned long long bytes = a.count * kElementBytes;
  const PackArray from = ArrayAt(a.send, 0, bytes);
  const PackArray to = ArrayAt(a.recv, 0, bytes);
  const bool is_aligned = IsAligned(a.send) && IsAligned(a.recv);
  const Chunks chunks(from.packs(), static_cast<int>(blockDim.x) * COTUNE_UNROLL * kPackBytes);
  for (unsigned int c = 0; c < chunks.count(); ++c) {
    const unsigned int size = chunks.Size(c);
    const unsigned long long begin = chunks.Begin(c);
    const bool are_whole = is_aligned && (begin + size) * kPackBytes <= bytes;
    ForPacks(size, are_whole, [&](auto access, unsigned int at) {
      Pack packs[access.kUnroll];
#pragma unroll
      for (int u = 0; u < access.kUnroll; ++u) {
        const unsigned int i = at + u * blockDim.x;
        if (i < size) packs[u] = access.Load(from, begin + i);
      }
#pragma unroll
      for (int u = 0; u < access.kUnroll; ++u) {
        const unsigned int i = at + u * blockDim.x;
        if (i < size) access.Store(to, begin + i, packs[u]);
      }
    });
  }
}

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS)
    cotune_kernel(const __grid_constant__ KernelArguments a) {
  BeginLaunch(a);
  if (a.segment >= 0) {
    CopyHere(a);
    return;
  }
  SpinBudget budget(a);
  Rounds rounds(a, budget);
  if (!rounds.Begin()) return;
  rounds.SetFlags(0);
  if (!rounds.WaitForFlags(0)) return;
  rounds.End(1);
}
