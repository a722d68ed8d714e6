// A collective with operations around it, as kernels of regions see it: leaves (8 elements) of its
// operand and of its value, and the packs in which a leaf travels. The operations are in the
// generated header: `Source` computes a leaf of the operand. `Sink` computes what follows from the
// value leaf by leaf (leaf_region.cuh), or `RowSink` row by row (row_region.cuh).
#pragma once

#include "element.cuh"

// Includes what it uses of the parts.
#include "program.cuh"

namespace cotune::cuda {

// A leaf of bytes fills half of a pack.
constexpr int kLeafPacks =
    static_cast<int>((sizeof(Leaf<Reduced>) + sizeof(Pack) - 1) / sizeof(Pack));
constexpr int kWordsOfPack = Leaf<Reduced>::kWords < 4 ? Leaf<Reduced>::kWords : 4;

__device__ __forceinline__ Pack PackOf(const Leaf<Reduced>& leaf, int p) {
  Pack pack = {};
#pragma unroll
  for (int w = 0; w < kWordsOfPack; ++w) pack.word[w] = leaf.word[4 * p + w];
  return pack;
}
__device__ __forceinline__ void SetPack(Leaf<Reduced>& leaf, int p, const Pack& pack) {
#pragma unroll
  for (int w = 0; w < kWordsOfPack; ++w) leaf.word[4 * p + w] = pack.word[w];
}

// The place of a leaf in a value.
struct LeafPlace {
  unsigned long long row;
  unsigned long long column;  // that of the first element
  unsigned int count;         // elements that exist
};

// kHasPlaces: the operations depend on the row or the column, and rows have whole leaves. Else all
// elements are one row.
template <bool kHasPlaces>
__device__ __forceinline__ LeafPlace PlaceOf(unsigned long long leaf, unsigned long long elements) {
  if constexpr (kHasPlaces) {
    constexpr unsigned int kLeavesOfRow = (kColumns + kLeafColumns - 1) / kLeafColumns;
    return {leaf / kLeavesOfRow, leaf % kLeavesOfRow * kLeafColumns, kLeafColumns};
  } else {
    const unsigned long long first = leaf * kLeafColumns;
    const unsigned long long left = elements - first;
    return {0, first, left < kLeafColumns ? static_cast<unsigned int>(left) : kLeafColumns};
  }
}

// One side of a region at one leaf.
template <typename Side>
struct SideAt {
  Side side;
  LeafPlace place;
};
template <typename Side, int kOperands>
__device__ __forceinline__ SideAt<Side> At(const PartArguments<kOperands>& a,
                                           unsigned long long leaf, unsigned long long elements) {
  return {{a}, PlaceOf<Side::kHasPlaces>(leaf, elements)};
}
// In a bucket the leaf belongs to one piece. The tables lie in constant memory, and all threads of
// a warp but a few read the same entry.
template <typename Side, int kOperands, int kPieces>
__device__ __forceinline__ SideAt<Side> At(const PieceArguments<kOperands, kPieces>& a,
                                           unsigned long long leaf, unsigned long long) {
  unsigned int piece = 0;
#pragma unroll
  for (int p = 1; p < kPieces; ++p) piece += leaf >= a.first_leaves[p] ? 1 : 0;
  const unsigned long long of_piece = leaf - a.first_leaves[piece];
  return {{{{a, piece * (kOperands / kPieces)}}}, PlaceOf<false>(of_piece, a.elements[piece])};
}

// Leaves of callers' arrays are read and written as vectors, because they are known to be aligned
// and full, or as each leaf allows.
struct FullLeaf {
  static constexpr bool kIsFull = true;
};
struct AnyLeaf {
  static constexpr bool kIsFull = false;
};

// True if the `count` leaves from `first` on are full.
template <int kOperands>
__device__ __forceinline__ bool AreLeavesFull(const PartArguments<kOperands>&,
                                              unsigned long long elements, unsigned long long first,
                                              unsigned long long count) {
  const unsigned long long end = elements / kLeafColumns;  // that of full leaves
  return elements % kLeafColumns == 0 || end < first || end - first >= count;
}
template <int kOperands, int kPieces>
__device__ __forceinline__ bool AreLeavesFull(const PieceArguments<kOperands, kPieces>& a,
                                              unsigned long long, unsigned long long first,
                                              unsigned long long count) {
  for (int p = 0; p < kPieces; ++p) {
    const unsigned long long end = a.first_leaves[p] + a.elements[p] / kLeafColumns;
    if (a.elements[p] % kLeafColumns != 0 && end >= first && end - first < count) return false;
  }
  return true;
}

// One leaf of the collective's operand.
template <typename Access>
__device__ __forceinline__ Leaf<Reduced> LeafOfSource(Access, const SourceArguments& a,
                                                      unsigned long long leaf,
                                                      unsigned long long elements) {
  const auto [source, at] = At<Source>(a, leaf, elements);
  if constexpr (Access::kIsFull) return source.At<true>(at.row, at.column, kLeafColumns);
  return a.is_aligned != 0 && at.count == kLeafColumns
             ? source.At<true>(at.row, at.column, at.count)
             : source.At<false>(at.row, at.column, at.count);
}

}  // namespace cotune::cuda
