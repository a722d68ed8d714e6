// The GPU of one rank, and what this backend asks of its compute capability.
#ifndef COTUNE_PLUGINS_CUDA_MEMORY_GPU_H_
#define COTUNE_PLUGINS_CUDA_MEMORY_GPU_H_

#include "plugins/sdk/gpu/gpu.h"

namespace cotune::cuda {

using sdk::ComputeCapability;
using sdk::Gpu;

// The kernels need compute capability 8.0.
inline constexpr int kOldestMajor = 8;

// Programmatic dependent launch (PDL) came with compute capability 9.0. Pure.
constexpr bool HasProgrammaticLaunch(const ComputeCapability& capability) {
  return capability.major >= 9;
}

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_MEMORY_GPU_H_
