// The fused kernels of testing/region_cases.h, compiled for the CPU.
#ifndef COTUNE_PLUGINS_CUDA_CPU_RUNNER_FUSED_VARIANTS_H_
#define COTUNE_PLUGINS_CUDA_CPU_RUNNER_FUSED_VARIANTS_H_

#include <cstddef>
#include <span>

#include "plugins/cuda/cpu_runner/kernel_block.h"
#include "plugins/cuda/kernels/kernel_abi.h"
#include "plugins/cuda/parts/part_arguments.h"

namespace cotune::cuda::cpu {

// The arguments of a fused kernel.
struct FusedArguments {
  KernelArguments kernel{};
  AnyPartArguments source{};
  AnyPartArguments sink{};
};

// The kernels of RegionVariants in their order, cut into slices.
inline constexpr size_t kFusedSlices = 4;
extern const std::span<const PlainFunction> kFusedSlice0;
extern const std::span<const PlainFunction> kFusedSlice1;
extern const std::span<const PlainFunction> kFusedSlice2;
extern const std::span<const PlainFunction> kFusedSlice3;

}  // namespace cotune::cuda::cpu

#endif  // COTUNE_PLUGINS_CUDA_CPU_RUNNER_FUSED_VARIANTS_H_
