// The wrong kernels of testing/region_mutants.h, compiled for the CPU.
#ifndef COTUNE_PLUGINS_CUDA_CPU_RUNNER_FUSED_MUTANTS_H_
#define COTUNE_PLUGINS_CUDA_CPU_RUNNER_FUSED_MUTANTS_H_

#include <span>

#include "plugins/cuda/cpu_runner/fused_variants.h"

namespace cotune::cuda::cpu {

// In the order of AllMutants; their arguments are FusedArguments.
extern const std::span<const PlainFunction> kFusedMutants;

}  // namespace cotune::cuda::cpu

#endif  // COTUNE_PLUGINS_CUDA_CPU_RUNNER_FUSED_MUTANTS_H_
