// The kernels of the parts of testing/part_cases.h, compiled for the CPU.
#ifndef COTUNE_PLUGINS_CUDA_CPU_RUNNER_PART_VARIANTS_H_
#define COTUNE_PLUGINS_CUDA_CPU_RUNNER_PART_VARIANTS_H_

#include <span>

#include "plugins/cuda/cpu_runner/kernel_block.h"

namespace cotune::cuda::cpu {

// In the order of PartVariants, cut into slices of equal length.
inline constexpr size_t kPartSlices = 4;
extern const std::span<const PlainFunction> kPartSlice0;
extern const std::span<const PlainFunction> kPartSlice1;
extern const std::span<const PlainFunction> kPartSlice2;
extern const std::span<const PlainFunction> kPartSlice3;

}  // namespace cotune::cuda::cpu

#endif  // COTUNE_PLUGINS_CUDA_CPU_RUNNER_PART_VARIANTS_H_
