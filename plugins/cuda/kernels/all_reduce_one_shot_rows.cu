// all_reduce in one exchange (all_reduce_one_shot.cu) with operations around it, of which those
// that follow reduce rows. A row belongs to the threads of part_rows.cuh: every rank pushes its
// leaves of the row to every peer, adds up by itself, and runs the operations on the sum while that
// is in the registers of these threads.
#include "row_region.cuh"

using namespace cotune::cuda;

namespace {

// Rows of one step, and the slots of their leaves in scratch.
struct RowStep {
  unsigned int threads;  // of the launch
  unsigned int thread;
  bool row_is_there;

  __device__ __forceinline__ unsigned int ColumnsOf(int j) const {
    return cotune::cuda::ColumnsOf<kColumns>(j, row_is_there);
  }
  // Packs of one number in all leaves lie one after another, so that stores of a warp do. Scratch
  // has less than 4 GiB.
  __device__ __forceinline__ unsigned int SlotOf(int rank, int j, int p) const {
    const auto array = static_cast<unsigned int>(rank * kLeafPacks + p);
    return ((array * RowSink<true>::kLeaves + j) * threads + thread) * Transport::kSlotBytes;
  }
};

template <int kLeaves>
__device__ __forceinline__ void SendRow(const KernelArguments& a, const Launch& launch,
                                        const RowStep& step,
                                        const Pack (&own)[kLeaves][kLeafPacks]) {
#pragma unroll
  for (int j = 0; j < kLeaves; ++j) {
    if (step.ColumnsOf(j) == 0) continue;
#pragma unroll
    for (int hop = 1; hop <= kPeers; ++hop) {
      unsigned char* const to = launch.Scratch((a.rank + hop) % COTUNE_WORLD_SIZE);
#pragma unroll
      for (int p = 0; p < kLeafPacks; ++p)
        Transport::Send(to + step.SlotOf(a.rank, j, p), own[j][p]);
    }
  }
}

// Adds up the leaves of the row as those of all peers arrive. False: gave up.
template <int kLeaves, class Rows>
__device__ __forceinline__ bool ReduceRow(const KernelArguments& a, Launch& launch,
                                          const RowStep& step, bool is_last, SpinBudget& budget,
                                          const Pack (&own)[kLeaves][kLeafPacks], Rows& rows) {
  unsigned char* const scratch = launch.Scratch(a.rank);
#pragma unroll
  for (int first = 0; first < kLeaves; first += kLeavesAtOnce) {
    if (step.ColumnsOf(first) == 0) continue;
    Pack others[kLeavesAtOnce * kPacksOfLeaves];
    const auto from = [&](int n) { return PeerAt(n % kPeers, a.rank); };
    const auto leaf = [&](int n) { return first + n / kPacksOfLeaves; };
    const auto slot = [&](int n) {
      return scratch + step.SlotOf(from(n), leaf(n), n / kPeers % kLeafPacks);
    };
    const auto sends = [&](int n) { return leaf(n) < kLeaves && step.ColumnsOf(leaf(n)) != 0; };
    if (!ReceiveFrom(from, slot, sends, others, launch, is_last, budget, first == 0)) return false;
#pragma unroll
    for (int j = first; j < first + kLeavesAtOnce && j < kLeaves; ++j) {
      Leaf<Reduced> sum = {};
#pragma unroll
      for (int p = 0; p < kLeafPacks; ++p) {
        Pack of_peers[kPeers];
#pragma unroll
        for (int q = 0; q < kPeers; ++q) {
          of_peers[q] = others[(j - first) * kPacksOfLeaves + p * kPeers + q];
        }
        SetPack(sum, p, ReduceInRankOrder(own[j][p], of_peers, a.rank));
      }
      rows.SetLeaf(j, sum);
    }
  }
  return true;
}

// A thread that gives up goes on without data: the others of its row wait for it in reductions, and
// blocks of a cluster must not end while others push to them.
template <bool kIsAligned>
__device__ __forceinline__ void Run(const KernelArguments& a, const SourceArguments& source,
                                    const SinkArguments& sink) {
  RowMemory memory;
  memory.BeginCluster();
  BeginLaunch();
  SpinBudget budget(a);
  Launch launch(a, budget);
  RowSink<kIsAligned> rows(sink);
  constexpr int kLeaves = RowSink<kIsAligned>::kLeaves;
  const unsigned int step_rows = gridDim.x / kRowBlocks * kRowsOfBlock;
  // All rows together are less than 4 GiB.
  const auto row_count = static_cast<unsigned int>(rows.rows());
  bool is_open = true;
  for (unsigned int base = 0; base < row_count; base += step_rows, launch.NextStep()) {
    const unsigned int first_row = base + blockIdx.x / kRowBlocks * kRowsOfBlock;
    const unsigned int row = kRowsOfBlock == 1 ? first_row : first_row + threadIdx.x / kRowThreads;
    const RowStep step{launch.threads(), launch.thread(), row < row_count};
    Pack own[kLeaves][kLeafPacks];
#pragma unroll
    for (int j = 0; j < kLeaves; ++j) {
      const unsigned int count = step.ColumnsOf(j);
      if (count != 0) LoadSourceOfRow<kIsAligned>(source, row, ColumnOf(j), count, own[j]);
    }
    if (is_open) SendRow(a, launch, step, own);
    rows.LoadRow(row, step.row_is_there);
    if (base == 0) {
      rows.LoadShared();
      is_open = launch.Begin();
      launch.Arrive();
    }
    if (first_row >= row_count) continue;
    const bool is_last = base + step_rows >= row_count;
    is_open = is_open && ReduceRow(a, launch, step, is_last, budget, own, rows);
    rows.Finish(row, step.row_is_there, memory);
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
