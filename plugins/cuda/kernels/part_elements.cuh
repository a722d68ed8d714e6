// Stages without row reductions: leaf after leaf, by all threads of the stage's blocks.
#pragma once

#include "part_blocks.cuh"
#include "part_leaf.cuh"

namespace cotune::cuda {

__device__ __forceinline__ unsigned long long ThreadOf(const StageBlocks& blocks) {
  return static_cast<unsigned long long>(blocks.block) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ unsigned long long ThreadsOf(const StageBlocks& blocks) {
  return static_cast<unsigned long long>(blocks.blocks) * blockDim.x;
}

// Elements that depend on no row and no column: one row of `elements` columns.
template <class Elements>
__device__ __forceinline__ void ForElements(const Elements& work, unsigned long long elements,
                                            bool is_aligned,
                                            const StageBlocks& blocks = WholeGrid()) {
  for (unsigned long long first = ThreadOf(blocks) * kLeafColumns; first < elements;
       first += ThreadsOf(blocks) * kLeafColumns) {
    const unsigned long long left = elements - first;
    if (is_aligned && left >= kLeafColumns) {
      work.template At<true>(0, first, kLeafColumns);
    } else {
      work.template At<false>(0, first,
                              left < kLeafColumns ? static_cast<unsigned int>(left) : kLeafColumns);
    }
  }
}

// Rows of kColumns elements.
template <unsigned int kColumns, class Elements>
__device__ __forceinline__ void ForRows(const Elements& work, unsigned long long rows,
                                        bool is_aligned, const StageBlocks& blocks = WholeGrid()) {
  constexpr unsigned int kLeaves = (kColumns + kLeafColumns - 1) / kLeafColumns;
  for (unsigned long long leaf = ThreadOf(blocks); leaf < rows * kLeaves;
       leaf += ThreadsOf(blocks)) {
    const unsigned long long row = leaf / kLeaves;
    const unsigned int column = static_cast<unsigned int>(leaf % kLeaves) * kLeafColumns;
    if (kColumns % kLeafColumns == 0 && is_aligned) {
      work.template At<true>(row, column, kLeafColumns);
    } else {
      const unsigned int left = kColumns - column;
      work.template At<false>(row, column, left < kLeafColumns ? left : kLeafColumns);
    }
  }
}

}  // namespace cotune::cuda
