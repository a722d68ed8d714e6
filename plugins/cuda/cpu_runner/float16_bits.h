// The conversion instructions of a GPU on bit patterns: they round as everybody does, and make one
// and the same NaN of all.
#ifndef COTUNE_PLUGINS_CUDA_CPU_RUNNER_FLOAT16_BITS_H_
#define COTUNE_PLUGINS_CUDA_CPU_RUNNER_FLOAT16_BITS_H_

#include <cstdint>

#include "plugins/sdk/float16.h"

namespace cotune::cuda::cpu {

inline constexpr uint16_t kNanOfGpu = 0x7fff;

constexpr uint16_t Bf16BitsFromFloat(float value) {
  return value != value ? kNanOfGpu : sdk::Bf16FromF32(value);
}

constexpr uint16_t F16BitsFromFloat(float value) {
  return value != value ? kNanOfGpu : sdk::F16FromF32(value);
}

constexpr float FloatFromF16Bits(uint16_t value) { return sdk::F32FromF16(value); }

}  // namespace cotune::cuda::cpu

#endif  // COTUNE_PLUGINS_CUDA_CPU_RUNNER_FLOAT16_BITS_H_
