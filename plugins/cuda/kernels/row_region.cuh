// Regions whose operations after the collective reduce rows: the generated `RowSink` computes and
// stores what follows from a row of the value, of which each thread is given its leaves. Its sizes
// are those of part_rows.cuh.
#pragma once

#include "region.cuh"

namespace cotune::cuda {

// Leaves of a thread in a row of the collective.
constexpr int kRowLeaves = RowSink<true>::kLeaves;
constexpr int kPacksOfLeaves = kPeers * kLeafPacks;
// A thread waits for so many packs of a row at once: more would not fit into its registers.
constexpr int kRowPacksAtOnceMax = 8;
constexpr int kLeavesThatFit =
    kPacksOfLeaves < kRowPacksAtOnceMax ? kRowPacksAtOnceMax / kPacksOfLeaves : 1;
constexpr int kLeavesAtOnce = kLeavesThatFit < kRowLeaves ? kLeavesThatFit : kRowLeaves;

// With at most 128 registers a thread, a block of the next launch has room beside one of this
// launch.
constexpr int kRowResidentBlocks = COTUNE_THREADS <= 256 ? 512 / COTUNE_THREADS : 1;

using RowPacks = Pack[kRowLeaves][kLeafPacks];

// A row of a step. All rows together are less than 4 GiB.
struct RowPlace {
  unsigned int row;
  bool is_there;

  // The number of columns of the thread's leaf j; 0 if it is not there.
  __device__ __forceinline__ unsigned int Columns(int j) const {
    return ColumnsOf<kColumns>(j, is_there);
  }
};

// Scratch has an array of slots for each sender of a step, and less than 4 GiB in all. Packs of one
// number in all leaves lie one after another, so that stores of a warp do.
struct RowSlots {
  unsigned int threads;  // the launch has so many
  unsigned int thread;

  __device__ __forceinline__ unsigned int At(int array, int j, int p) const {
    const auto of_packs = static_cast<unsigned int>(array * kLeafPacks + p);
    return ((of_packs * kRowLeaves + j) * threads + thread) * Transport::kSlotBytes;
  }
};

// The thread's leaves of a row of the collective's operand, as the peers see them.
template <bool kIsArrayAligned>
__device__ __forceinline__ void LoadSourceOfRow(const SourceArguments& a, const RowPlace& place,
                                                RowPacks& packs) {
  constexpr bool kIsAligned = kIsArrayAligned && kColumns % kLeafColumns == 0;
  const Source source{a};
  const unsigned long long row = place.row;
#pragma unroll
  for (int j = 0; j < kRowLeaves; ++j) {
    const unsigned int count = place.Columns(j);
    if (count == 0) continue;
    Leaf<Reduced> loaded;
    if constexpr (Source::kHasPlaces) {
      loaded = source.template At<kIsAligned>(row, ColumnOf(j), count);
    } else {
      loaded = source.template At<kIsAligned>(0, row * kColumns + ColumnOf(j), count);
    }
#pragma unroll
    for (int p = 0; p < kLeafPacks; ++p) packs[j][p] = Transport::Sendable(PackOf(loaded, p));
  }
}

// Sends the thread's leaves of a row into an array of a peer's scratch.
__device__ __forceinline__ void SendRow(unsigned char* scratch, const RowSlots& slots, int array,
                                        const RowPlace& place, const RowPacks& packs) {
#pragma unroll
  for (int j = 0; j < kRowLeaves; ++j) {
    if (place.Columns(j) == 0) continue;
#pragma unroll
    for (int p = 0; p < kLeafPacks; ++p)
      Transport::Send(scratch + slots.At(array, j, p), packs[j][p]);
  }
}

// See ReduceRow; kLeavesAtOnce leaves of all peers are in the registers at once.
template <class Rows>
__device__ __forceinline__ bool ReduceWholeLeaves(const KernelArguments& a, Launch& launch,
                                                  const RowSlots& slots, const RowPlace& place,
                                                  bool is_last, SpinBudget& budget, RowPacks& own,
                                                  Rows& rows) {
  unsigned char* const scratch = launch.Scratch(a.rank);
#pragma unroll
  for (int first = 0; first < kRowLeaves; first += kLeavesAtOnce) {
    const bool has_data = place.Columns(first) != 0;
    if (!has_data && first != 0) continue;
    Pack others[kLeavesAtOnce * kPacksOfLeaves];
    const auto from = [&](int n) { return PeerAt(n % kPeers, a.rank); };
    const auto leaf = [&](int n) { return first + n / kPacksOfLeaves; };
    const auto slot = [&](int n) {
      return scratch + slots.At(from(n), leaf(n), n / kPeers % kLeafPacks);
    };
    const auto sends = [&](int n) { return leaf(n) < kRowLeaves && place.Columns(leaf(n)) != 0; };
    if (!ReceiveFrom(from, slot, sends, others, launch, is_last, budget, first == 0)) return false;
    if (!has_data) continue;
#pragma unroll
    for (int j = first; j < first + kLeavesAtOnce && j < kRowLeaves; ++j) {
      Leaf<Reduced> sum = {};
#pragma unroll
      for (int p = 0; p < kLeafPacks; ++p) {
        Pack of_peers[kPeers];
#pragma unroll
        for (int q = 0; q < kPeers; ++q) {
          of_peers[q] = others[(j - first) * kPacksOfLeaves + p * kPeers + q];
        }
        own[j][p] = ReduceInRankOrder(own[j][p], of_peers, a.rank);
        SetPack(sum, p, own[j][p]);
      }
      rows.SetLeaf(j, sum);
    }
  }
  return true;
}

// See ReduceRow; one pack of each peer is in the registers, where a leaf has too many.
template <class Rows>
__device__ __forceinline__ bool ReducePacks(const KernelArguments& a, Launch& launch,
                                            const RowSlots& slots, const RowPlace& place,
                                            bool is_last, SpinBudget& budget, RowPacks& own,
                                            Rows& rows) {
  unsigned char* const scratch = launch.Scratch(a.rank);
#pragma unroll
  for (int j = 0; j < kRowLeaves; ++j) {
    const bool has_data = place.Columns(j) != 0;
    if (!has_data && j != 0) continue;
    Leaf<Reduced> sum = {};
#pragma unroll
    for (int p = 0; p < kLeafPacks; ++p) {
      Pack of_peers[kPeers];
      const auto slot = [&](int q) { return scratch + slots.At(PeerAt(q, a.rank), j, p); };
      const auto sends = [&](int) { return has_data; };
      if (!Receive(slot, sends, of_peers, a.rank, launch, is_last, budget, j == 0 && p == 0)) {
        return false;
      }
      if (!has_data) break;
      own[j][p] = ReduceInRankOrder(own[j][p], of_peers, a.rank);
      SetPack(sum, p, own[j][p]);
    }
    if (has_data) rows.SetLeaf(j, sum);
  }
  return true;
}

// Adds up the leaves of a row as those of all peers arrive, each in the array of its rank, and
// gives them to the operations that follow. own: this rank's; the sum takes its place. False: gave
// up.
//
// A thread without data takes part in the first wait, in which it receives nothing and compares the
// calls: it would otherwise wait in the barriers of its row, for threads that may wait for the data
// of another call. (A comparison of its own before the wait adds 230 instructions to a kernel of
// 1900; the tree that had it took 0.13 to 0.19 us longer for few rows on 2 H200.)
static_assert(kComparesInLoop);
template <class Rows>
__device__ __forceinline__ bool ReduceRow(const KernelArguments& a, Launch& launch,
                                          const RowSlots& slots, const RowPlace& place,
                                          bool is_last, SpinBudget& budget, RowPacks& own,
                                          Rows& rows) {
  if constexpr (kPacksOfLeaves <= kRowPacksAtOnceMax) {
    return ReduceWholeLeaves(a, launch, slots, place, is_last, budget, own, rows);
  } else {
    return ReducePacks(a, launch, slots, place, is_last, budget, own, rows);
  }
}

// Waits for the leaves of a row that `owner` has added up, in the array of that number, and gives
// them to the operations that follow. False: gave up.
template <class Rows>
__device__ __forceinline__ bool ReceiveRow(const KernelArguments& a, Launch& launch,
                                           const RowSlots& slots, int owner, int array,
                                           const RowPlace& place, bool is_last, SpinBudget& budget,
                                           Rows& rows) {
  unsigned char* const scratch = launch.Scratch(a.rank);
  if (place.Columns(0) == 0) return true;
  Pack sums[kRowLeaves * kLeafPacks];
  const auto from = [&](int) { return owner; };
  const auto slot = [&](int n) {
    return scratch + slots.At(array, n / kLeafPacks, n % kLeafPacks);
  };
  const auto sends = [&](int n) { return place.Columns(n / kLeafPacks) != 0; };
  if (!ReceiveFrom(from, slot, sends, sums, launch, is_last, budget)) return false;
#pragma unroll
  for (int j = 0; j < kRowLeaves; ++j) {
    Leaf<Reduced> sum;
#pragma unroll
    for (int p = 0; p < kLeafPacks; ++p) SetPack(sum, p, sums[j * kLeafPacks + p]);
    rows.SetLeaf(j, sum);
  }
  return true;
}

}  // namespace cotune::cuda
