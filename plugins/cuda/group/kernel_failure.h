// Failures that kernels write down, as errors.
#ifndef COTUNE_PLUGINS_CUDA_GROUP_KERNEL_FAILURE_H_
#define COTUNE_PLUGINS_CUDA_GROUP_KERNEL_FAILURE_H_

#include "plugins/cuda/choices/choice_list.h"
#include "plugins/cuda/kernels/kernel_abi.h"
#include "plugins/sdk/failure.h"

namespace cotune::cuda {

// The record of group rank `rank`, which is written. COTUNE_PEER_FAILED when a rank came too late
// or made another call, COTUNE_ABORTED, COTUNE_INTERNAL for what no kernel should find. Pure.
sdk::Failure FailureOf(const FailureRecord& record, int rank, int world_size,
                       const ChoiceLimits& limits);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_GROUP_KERNEL_FAILURE_H_
