// all_reduce in two exchanges (all_reduce_two_shot.cu) with operations around it, of which those
// that follow reduce rows. Every rank owns a share of the rows: it adds them up, and pushes the
// sums to every peer. Each rank runs the operations that follow on all rows, as their sums arrive.
// The threads of a row (part_rows.cuh) do so with one row of every owner in a step.
#include "row_owners.cuh"

using namespace cotune::cuda;

namespace {

// The rows of a step that peers own.
template <bool kIsAligned>
struct RowsOfPeers {
  const KernelArguments& a;
  Launch& launch;
  SpinBudget& budget;
  RowMemory& memory;
  const RowSlots& slots;
  const OwnedRows& owned;
  const RowSink<kIsAligned>& shared;
  bool is_last;

  __device__ __forceinline__ RowPlace PlaceOf(int q) const { return owned.Of(PeerAt(q, a.rank)); }
  // The other operands of the row that peer q owns.
  __device__ __forceinline__ RowSink<kIsAligned> Load(int q) const {
    RowSink<kIsAligned> rows = shared;
    rows.LoadRow(PlaceOf(q).row, PlaceOf(q).is_there);
    return rows;
  }
  // Runs the operations on the rows of peer q and those after it. While one row is finished, the
  // operands of the next one are on their way.
  template <int q>
  __device__ __forceinline__ bool Finish(RowSink<kIsAligned>& rows, bool is_open) {
    const int owner = PeerAt(q, a.rank);
    const auto finish = [&] {
      is_open = is_open && ReceiveRow(a, launch, slots, owner, COTUNE_WORLD_SIZE + owner,
                                      PlaceOf(q), is_last, budget, rows);
      rows.Finish(PlaceOf(q).row, PlaceOf(q).is_there, memory);
    };
    if constexpr (q + 1 < kPeers) {
      RowSink<kIsAligned> next = Load(q + 1);
      finish();
      return Finish<q + 1>(next, is_open);
    } else {
      finish();
      return is_open;
    }
  }
};

// A thread that gives up goes on without data, see all_reduce_one_shot_rows.cu.
template <bool kIsAligned>
__device__ __forceinline__ void Run(const KernelArguments& a, const SourceArguments& source,
                                    const SinkArguments& sink) {
  RowMemory memory;
  memory.BeginCluster();
  BeginLaunch(a, source, sink);
  SpinBudget budget(a);
  Launch launch(a, budget);
  RowSink<kIsAligned> shared(sink);  // what all rows have
  const RowSlots slots{launch.threads(), launch.thread()};
  const unsigned int step_rows = gridDim.x / kRowBlocks * kRowsOfBlock;
  const auto count = static_cast<unsigned int>(shared.rows());
  const unsigned int share = (count + COTUNE_WORLD_SIZE - 1) / COTUNE_WORLD_SIZE;
  bool is_open = true;
  for (unsigned int base = 0; base < share; base += step_rows, launch.NextStep()) {
    const unsigned int first = base + blockIdx.x / kRowBlocks * kRowsOfBlock;
    const OwnedRows owned{share, count,
                          kRowsOfBlock == 1 ? first : first + threadIdx.x / kRowThreads};
    SendToOwners<kIsAligned>(a, launch, slots, owned, source, is_open);
    const RowPlace place = owned.Of(a.rank);
    RowPacks own;
    LoadSourceOfRow<kIsAligned>(source, place, own);
    if (base == 0) {
      shared.LoadShared();
      is_open = launch.Begin();
      launch.Arrive();
    }
    if (first >= share) continue;
    RowSink<kIsAligned> rows = shared;
    rows.LoadRow(place.row, place.is_there);
    const bool is_last = base + step_rows >= share;
    is_open = is_open && ReduceRow(a, launch, slots, place, is_last, budget, own, rows);
    // This rank uses the sum as its peers see it.
#pragma unroll
    for (int j = 0; j < kRowLeaves; ++j) {
      Leaf<Reduced> sum;
#pragma unroll
      for (int p = 0; p < kLeafPacks; ++p) {
        own[j][p] = Transport::Sendable(own[j][p]);
        SetPack(sum, p, own[j][p]);
      }
      rows.SetLeaf(j, sum);
    }
    if (is_open) {
#pragma unroll
      for (int hop = 0; hop < kPeers; ++hop) {
        SendRow(launch.Scratch(PeerAfter(a.rank, hop)), slots, COTUNE_WORLD_SIZE + a.rank, place,
                own);
      }
    }
    RowsOfPeers<kIsAligned> peers{a, launch, budget, memory, slots, owned, shared, is_last};
    RowSink<kIsAligned> next = peers.Load(0);
    rows.Finish(place.row, place.is_there, memory);
    is_open = peers.template Finish<0>(next, is_open);
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
