// Regions whose operations after the collective reduce rows: the generated `RowSink` computes and
// stores what follows from a row of the value, of which each thread is given its leaves.
#pragma once

#include "region.cuh"

namespace cotune::cuda {

// A thread waits for so many packs of a row at once: more would not fit into its registers.
constexpr int kRowPacksAtOnceMax = 8;
constexpr int kPacksOfLeaves = kPeers * kLeafPacks;
constexpr int kLeavesAtOnce =
    kPacksOfLeaves < kRowPacksAtOnceMax ? kRowPacksAtOnceMax / kPacksOfLeaves : 1;

// With at most 128 registers a thread, a block of the next launch has room beside one of this
// launch.
constexpr int kRowResidentBlocks = COTUNE_THREADS <= 256 ? 512 / COTUNE_THREADS : 1;

// One leaf of a row of the collective's operand, as the peers see it.
template <bool kIsArrayAligned>
__device__ __forceinline__ void LoadSourceOfRow(const SourceArguments& a, unsigned long long row,
                                                unsigned int column, unsigned int count,
                                                Pack (&packs)[kLeafPacks]) {
  constexpr bool kIsAligned = kIsArrayAligned && kColumns % kLeafColumns == 0;
  const Source source{a};
  Leaf<Reduced> loaded;
  if constexpr (Source::kHasPlaces) {
    loaded = source.template At<kIsAligned>(row, column, count);
  } else {
    loaded = source.template At<kIsAligned>(0, row * kColumns + column, count);
  }
#pragma unroll
  for (int p = 0; p < kLeafPacks; ++p) packs[p] = Transport::Sendable(PackOf(loaded, p));
}

}  // namespace cotune::cuda
