// The kernel sources, compiled for the CPU with many sets of options.
#ifndef COTUNE_PLUGINS_CUDA_CPU_RUNNER_KERNEL_VARIANTS_H_
#define COTUNE_PLUGINS_CUDA_CPU_RUNNER_KERNEL_VARIANTS_H_

#include <span>
#include <string_view>

#include "plugins/cuda/cpu_runner/kernel_block.h"

namespace cotune::cuda::cpu {

// The -D options that a variant was compiled with.
struct KernelVariant {
  std::string_view collective;  // "ALL_REDUCE"
  std::string_view algorithm;   // "one_shot"
  std::string_view transport;   // "LAMPORT"
  std::string_view type;        // "F32"
  std::string_view reduction;   // "SUM"; empty for collectives that only move data
  int world_size;
  int unroll;
  KernelFunction function;
};

extern const std::span<const KernelVariant> kOneShotVariants;
extern const std::span<const KernelVariant> kTwoShotVariants;
extern const std::span<const KernelVariant> kReduceScatterVariants;
extern const std::span<const KernelVariant> kMoveVariants;
extern const std::span<const KernelVariant> kRingVariants;
extern const std::span<const KernelVariant> kTreeVariants;

// Not in kAllVariantSets: alone they do no collective.
extern const std::span<const KernelVariant> kCopyEngineVariants;

inline constexpr const std::span<const KernelVariant>* kAllVariantSets[] = {
    &kOneShotVariants, &kTwoShotVariants, &kReduceScatterVariants,
    &kMoveVariants,    &kRingVariants,    &kTreeVariants};

}  // namespace cotune::cuda::cpu

#endif  // COTUNE_PLUGINS_CUDA_CPU_RUNNER_KERNEL_VARIANTS_H_
