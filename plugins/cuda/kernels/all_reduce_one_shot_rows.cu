// all_reduce in one exchange (all_reduce_one_shot.cu) with operations around it, of which those
// that follow reduce rows. A row belongs to the threads of part_rows.cuh: every rank pushes its
// leaves of the row to every peer, adds up by itself, and runs the operations on the sum while that
// is in the registers of these threads.
#include "row_region.cuh"

using namespace cotune::cuda;

namespace {

// A thread that gives up goes on without data: the others of its row wait for it in reductions, and
// blocks of a cluster must not end while others push to them.
template <bool kIsAligned>
__device__ __forceinline__ void Run(const KernelArguments& a, const SourceArguments& source,
                                    const SinkArguments& sink) {
  RowMemory memory;
  memory.BeginCluster();
  BeginLaunch(a, source, sink);
  SpinBudget budget(a);
  Launch launch(a, budget);
  RowSink<kIsAligned> rows(sink);
  const RowSlots slots{launch.threads(), launch.thread()};
  const unsigned int step_rows = gridDim.x / kRowBlocks * kRowsOfBlock;
  const auto row_count = static_cast<unsigned int>(rows.rows());
  bool is_open = true;
  for (unsigned int base = 0; base < row_count; base += step_rows, launch.NextStep()) {
    const unsigned int first_row = base + blockIdx.x / kRowBlocks * kRowsOfBlock;
    const unsigned int row = kRowsOfBlock == 1 ? first_row : first_row + threadIdx.x / kRowThreads;
    const RowPlace place{row, row < row_count};
    RowPacks own;
    LoadSourceOfRow<kIsAligned>(source, place, own);
    if (is_open) {
#pragma unroll
      for (int hop = 1; hop <= kPeers; ++hop) {
        const int peer = (a.rank + hop) % COTUNE_WORLD_SIZE;
        SendRow(launch.Scratch(peer), slots, a.rank, place, own);
      }
    }
    rows.LoadRow(row, place.is_there);
    if (base == 0) {
      rows.LoadShared();
      is_open = launch.Begin();
      launch.Arrive();
    }
    if (first_row >= row_count) continue;
    const bool is_last = base + step_rows >= row_count;
    is_open = is_open && ReduceRow(a, launch, slots, place, is_last, budget, own, rows);
    rows.Finish(row, place.is_there, memory);
  }
  if (is_open) launch.End();
}

}  // namespace

extern "C" __global__ void __launch_bounds__(COTUNE_THREADS, kRowResidentBlocks)
    cotune_kernel(const __grid_constant__ KernelArguments a,
                  const __grid_constant__ SourceArguments source,
                  const __grid_constant__ SinkArguments sink) {
  if (source.is_aligned != 0 && sink.is_aligned != 0) {
    Run<true>(a, source, sink);
  } else {
    Run<false>(a, source, sink);
  }
}
