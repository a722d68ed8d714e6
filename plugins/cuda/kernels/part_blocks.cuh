// The blocks that a stage of a part runs in: the whole grid, or its share of a launch that has
// several stages.
#pragma once

#include "prelude.cuh"

namespace cotune::cuda {

// The place of this block among the blocks of a stage.
struct StageBlocks {
  unsigned int block;   // counts from 0
  unsigned int blocks;  // the number of the stage's blocks
};

__device__ __forceinline__ StageBlocks WholeGrid() { return {blockIdx.x, gridDim.x}; }

// The blocks of stage kStage, in a launch whose first stage is kFirst. This block is one of them.
template <unsigned int kStage, unsigned int kFirst, class Arguments>
__device__ __forceinline__ StageBlocks BlocksOfStage(const Arguments& a) {
  const unsigned int end = a.stage_ends[kStage];
  unsigned int begin = 0;
  if constexpr (kStage > kFirst) begin = a.stage_ends[kStage - 1];
  if (begin == end) begin = end - 1;
  return {blockIdx.x - begin, end - begin};
}

// The first of the stages from kFirst to kEnd that this block runs; kEnd: none.
template <unsigned int kFirst, unsigned int kEnd, class Arguments>
__device__ __forceinline__ unsigned int FirstStage(const Arguments& a) {
  unsigned int stage = kFirst;
#pragma unroll
  for (unsigned int s = kFirst; s < kEnd; ++s) {
    if (blockIdx.x >= a.stage_ends[s]) ++stage;
  }
  return stage;
}

// Returns true if a block that has run stage kStage runs the next one, too, because the launch has
// fewer blocks than stages.
template <unsigned int kStage, class Arguments>
__device__ __forceinline__ bool RunsNextStage(const Arguments& a) {
  return a.stage_ends[kStage + 1] == blockIdx.x + 1;
}

}  // namespace cotune::cuda
