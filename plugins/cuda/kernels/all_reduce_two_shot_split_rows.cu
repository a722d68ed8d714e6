// all_reduce in two exchanges with operations around it that reduce rows, as
// all_reduce_two_shot_rows.cu; but the owner of a row runs the operations up to the last reduction
// alone. It pushes the value that the others go on with, and the results of the reductions. Every
// rank runs the operations that are left on all rows. It reads no other operands of these rows
// but single numbers, and it reduces nothing.
#include "row_owners.cuh"

using namespace cotune::cuda;

namespace {

// The lanes of a warp that have the same row. The first one sends and receives the numbers of the
// row for all of them; it has data if one of them does.
constexpr int kRowLanes = kRowThreads < kWarpLanes ? kRowThreads : kWarpLanes;
__device__ __forceinline__ bool IsFirstLaneOfRow() { return threadIdx.x % kRowLanes == 0; }

// The slot for the numbers of a row of `owner`. It follows the arrays of leaves.
__device__ __forceinline__ unsigned int NumbersAt(const RowSlots& slots, int owner) {
  const unsigned int leaves = slots.At(2 * COTUNE_WORLD_SIZE, 0, 0) -
                              slots.thread * static_cast<unsigned int>(Transport::kSlotBytes);
  const unsigned int slot =
      static_cast<unsigned int>(owner) * (slots.threads / kRowLanes) + slots.thread / kRowLanes;
  return leaves + slot * Transport::kSlotBytes;
}

template <class Rows>
__device__ __forceinline__ Pack NumbersOf(const Rows& rows) {
  Pack pack = {};
#pragma unroll
  for (int n = 0; n < Rows::kNumbers; ++n) pack.word[n] = __float_as_uint(rows.number[n]);
  return pack;
}
template <class Rows>
__device__ __forceinline__ void SetNumbers(Rows& rows, const Pack& pack) {
#pragma unroll
  for (int n = 0; n < Rows::kNumbers; ++n) rows.number[n] = __uint_as_float(pack.word[n]);
}

// Sends the carried value and the numbers of the own row to all ranks. This rank goes on with them
// as its peers see them.
template <class Rows>
__device__ __forceinline__ void SendOwnRow(const KernelArguments& a, const Launch& launch,
                                           const RowSlots& slots, const RowPlace& place,
                                           bool is_open, Rows& rows) {
  RowPacks packs;
#pragma unroll
  for (int j = 0; j < kRowLeaves; ++j) {
    Leaf<Reduced> leaf = rows.Carried(j);
#pragma unroll
    for (int p = 0; p < kLeafPacks; ++p) {
      packs[j][p] = Transport::Sendable(PackOf(leaf, p));
      SetPack(leaf, p, packs[j][p]);
    }
    rows.SetCarried(j, leaf);
  }
  const Pack numbers = Transport::Sendable(NumbersOf(rows));
  SetNumbers(rows, numbers);
  if (!is_open) return;
#pragma unroll
  for (int hop = 0; hop < kPeers; ++hop) {
    unsigned char* const scratch = launch.Scratch(PeerAfter(a.rank, hop));
    SendRow(scratch, slots, COTUNE_WORLD_SIZE + a.rank, place, packs);
    if (place.Columns(0) != 0 && IsFirstLaneOfRow()) {
      Transport::Send(scratch + NumbersAt(slots, a.rank), numbers);
    }
  }
}

// Waits for what the owner of a row sends. All lanes of a warp take part. False: gave up.
template <class Rows>
__device__ __forceinline__ bool ReceiveSplitRow(const KernelArguments& a, Launch& launch,
                                                const RowSlots& slots, int owner,
                                                const RowPlace& place, bool is_last,
                                                SpinBudget& budget, bool is_open, Rows& rows) {
  constexpr int kLeavesEnd = kRowLeaves * kLeafPacks;
  unsigned char* const scratch = launch.Scratch(a.rank);
  Pack packs[kLeavesEnd + 1] = {};
  if (is_open && place.Columns(0) != 0) {
    const auto from = [&](int) { return owner; };
    const auto slot = [&](int n) {
      return scratch + (n == kLeavesEnd
                            ? NumbersAt(slots, owner)
                            : slots.At(COTUNE_WORLD_SIZE + owner, n / kLeafPacks, n % kLeafPacks));
    };
    const auto sends = [&](int n) {
      return n == kLeavesEnd ? IsFirstLaneOfRow() : place.Columns(n / kLeafPacks) != 0;
    };
    is_open = ReceiveFrom(from, slot, sends, packs, launch, is_last, budget);
  }
#pragma unroll
  for (int j = 0; j < kRowLeaves; ++j) {
    Leaf<Reduced> leaf = {};
#pragma unroll
    for (int p = 0; p < kLeafPacks; ++p) SetPack(leaf, p, packs[j * kLeafPacks + p]);
    rows.SetCarried(j, leaf);
  }
  Pack numbers = {};
#pragma unroll
  for (int n = 0; n < Rows::kNumbers; ++n) {
    numbers.word[n] = OfFirstLane<kRowLanes>(packs[kLeavesEnd].word[n]);
  }
  SetNumbers(rows, numbers);
  return is_open;
}

// A thread that gives up goes on without data, see all_reduce_one_shot_rows.cu. Others of its row
// then send numbers that are wrong. No call succeeds by them: the thread never sends its own leaf
// of that row, and the same thread of each peer waits for it until the group has failed. So all
// threads that have a leaf of a row take part in its numbers, and nobody sends numbers without
// leaves.
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
    rows.LoadNumbers(place.row, place.is_there);
    const bool is_last = base + step_rows >= share;
    is_open = is_open && ReduceRow(a, launch, slots, place, is_last, budget, own, rows);
    rows.Fold(place.row, place.is_there, memory);
    SendOwnRow(a, launch, slots, place, is_open, rows);
    rows.Store(place.row, place.is_there);
#pragma unroll
    for (int q = 0; q < kPeers; ++q) {
      const int owner = PeerAt(q, a.rank);
      const RowPlace of_owner = owned.Of(owner);
      RowSink<kIsAligned> received = shared;
      received.LoadNumbers(of_owner.row, of_owner.is_there);
      is_open =
          ReceiveSplitRow(a, launch, slots, owner, of_owner, is_last, budget, is_open, received);
      received.Store(of_owner.row, of_owner.is_there);
    }
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
