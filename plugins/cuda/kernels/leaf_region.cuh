// Regions whose operations after the collective are elementwise: the generated `Sink` computes and
// stores what follows from one leaf of the value.
#pragma once

#include "region_leaf.cuh"

namespace cotune::cuda {

// The other operands of the operations that follow, which may be on their way while a thread waits
// for its peers.
template <typename Access>
__device__ __forceinline__ Sink::Operands LoadSink(Access, const SinkArguments& a,
                                                   unsigned long long leaf,
                                                   unsigned long long elements) {
  const auto [sink, at] = At<Sink>(a, leaf, elements);
  if constexpr (Access::kIsFull) return sink.Load<true>(at.row, at.column, kLeafColumns);
  return a.is_aligned != 0 && at.count == kLeafColumns
             ? sink.Load<true>(at.row, at.column, at.count)
             : sink.Load<false>(at.row, at.column, at.count);
}

// Runs the operations that follow on one leaf of the value, and stores the outputs.
template <typename Access>
__device__ __forceinline__ void StoreSink(Access, const SinkArguments& a, unsigned long long leaf,
                                          unsigned long long elements,
                                          const Sink::Operands& operands,
                                          const Pack (&packs)[kLeafPacks]) {
  const auto [sink, at] = At<Sink>(a, leaf, elements);
  Leaf<Reduced> value;
#pragma unroll
  for (int p = 0; p < kLeafPacks; ++p) SetPack(value, p, packs[p]);
  if constexpr (Access::kIsFull) {
    sink.Finish<true>(at.row, at.column, kLeafColumns, operands, value);
  } else if (a.is_aligned != 0 && at.count == kLeafColumns) {
    sink.Finish<true>(at.row, at.column, at.count, operands, value);
  } else {
    sink.Finish<false>(at.row, at.column, at.count, operands, value);
  }
}

}  // namespace cotune::cuda
