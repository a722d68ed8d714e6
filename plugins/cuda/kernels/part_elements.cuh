// Parts, or what is left of them, without row reductions: leaf after leaf, by all threads of the
// grid.
#pragma once

#include "part_leaf.cuh"

namespace cotune::cuda {

__device__ __forceinline__ unsigned long long ThreadOfGrid() {
  return static_cast<unsigned long long>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ unsigned long long ThreadsOfGrid() {
  return static_cast<unsigned long long>(gridDim.x) * blockDim.x;
}

// Elements that depend on no row and no column: one row of `elements` columns.
template <class Elements>
__device__ __forceinline__ void ForElements(const Elements& work, unsigned long long elements,
                                            bool is_aligned) {
  for (unsigned long long first = ThreadOfGrid() * kLeafColumns; first < elements;
       first += ThreadsOfGrid() * kLeafColumns) {
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
                                        bool is_aligned) {
  constexpr unsigned int kLeaves = (kColumns + kLeafColumns - 1) / kLeafColumns;
  for (unsigned long long leaf = ThreadOfGrid(); leaf < rows * kLeaves; leaf += ThreadsOfGrid()) {
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
