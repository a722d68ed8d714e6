// One choice of a region, ready to launch on one group.
#ifndef COTUNE_PLUGINS_CUDA_FUSED_FUSED_PLAN_H_
#define COTUNE_PLUGINS_CUDA_FUSED_FUSED_PLAN_H_

#include <cstdint>
#include <vector>

#include "plugins/api/draft/cotune_program_v1.h"
#include "plugins/cuda/choices/choice_list.h"
#include "plugins/cuda/fused/leaf_region.h"
#include "plugins/cuda/group/group.h"
#include "plugins/cuda/kernels/kernel_abi.h"
#include "plugins/cuda/parts/part_arguments.h"
#include "plugins/sdk/failure.h"

namespace cotune::cuda {

// The group owns none of it and outlives it. One thread at a time.
class FusedPlan {
 public:
  // function: of the choice's kernel.
  FusedPlan(Group& group, const LeafRegion& region, const Choice& choice, gpu::CuFunction function);

  // Enqueues the call; [hot] and capturable. The operands fit the region: the shell has checked
  // them.
  sdk::Result<void> Launch(const cotune_program_launch_t& launch);

 private:
  // The arguments of one side, and where they come from.
  class Side {
   public:
    explicit Side(const LeafSide& side);
    // outputs: nullptr if the side's output stays in registers.
    AnyPartArguments& ArgumentsOf(const void* const* inputs, void* const* outputs);

   private:
    const std::vector<int> inputs_;  // see LeafSide
    const std::vector<uint32_t> alignments_;
    std::vector<const void*> given_;
    std::vector<void*> stored_;
    AnyPartArguments arguments_;
  };

  KernelArguments ArgumentsOf(const cotune_program_launch_t& launch) const;

  Group& group_;
  const Choice choice_;
  const uint64_t count_;
  const CallRecord call_;
  const gpu::CuFunction function_;
  Side source_;
  Side sink_;
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_FUSED_FUSED_PLAN_H_
