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

// The blocks of a stage, in a launch whose first stage is kFirst. This block is one of them.
template <unsigned int kFirst, class Arguments>
__device__ __forceinline__ StageBlocks BlocksOfStage(const Arguments& a, unsigned int stage) {
  const unsigned int end = a.stage_ends[stage];
  unsigned int begin = 0;
  if (stage > kFirst) begin = a.stage_ends[stage - 1];
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

// Returns true if a block that has run a stage runs the next one, too, because the launch has fewer
// blocks than stages. The launch has a next one.
template <class Arguments>
__device__ __forceinline__ bool RunsNextStage(const Arguments& a, unsigned int stage) {
  return a.stage_ends[stage + 1] == blockIdx.x + 1;
}

// Runs the stages from `stage` on that this block runs, of a run of stages from kBegin to kEnd - 1
// in a launch whose first stage is kFirst. run(number, blocks) runs one; numbers count from kBegin.
// Returns the last stage that was run.
template <unsigned int kFirst, unsigned int kBegin, unsigned int kEnd, class Arguments, class Run>
__device__ __forceinline__ unsigned int RunStages(const Arguments& a, unsigned int stage, Run run) {
  while (true) {
    run(stage - kBegin, BlocksOfStage<kFirst>(a, stage));
    if (stage + 1 == kEnd || !RunsNextStage(a, stage)) return stage;
    ++stage;
  }
}

}  // namespace cotune::cuda
