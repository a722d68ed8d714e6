// One choice of a region, ready to launch on one group.
#ifndef COTUNE_PLUGINS_CUDA_FUSED_FUSED_PLAN_H_
#define COTUNE_PLUGINS_CUDA_FUSED_FUSED_PLAN_H_

#include <cstdint>

#include "plugins/api/cotune_program_v1.h"
#include "plugins/cuda/choices/choice_list.h"
#include "plugins/cuda/fused/leaf_region.h"
#include "plugins/cuda/fused/side_arguments.h"
#include "plugins/cuda/group/group.h"
#include "plugins/cuda/kernels/kernel_abi.h"
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
  KernelArguments ArgumentsOf(const cotune_program_launch_t& launch) const;

  Group& group_;
  const Choice choice_;
  const uint64_t count_;
  const CallRecord call_;
  const gpu::CuFunction function_;
  SideArguments source_;
  SideArguments sink_;
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_FUSED_FUSED_PLAN_H_
