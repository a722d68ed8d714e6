// The NaNs among computed 16-bit floats. A GPU makes one and the same of all of them, so that two
// ways to compute a program have equal bits only if both give this one.
#ifndef COTUNE_PLUGINS_CUDA_TESTING_COMPUTED_NANS_H_
#define COTUNE_PLUGINS_CUDA_TESTING_COMPUTED_NANS_H_

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "plugins/sdk/program.h"
#include "plugins/sdk/testing/part_builder.h"

namespace cotune::cuda {

// The NaN of a GPU, in f16 and in bf16.
inline constexpr uint16_t kComputedNan = 0x7fff;

// Returns which output has another NaN than a GPU computes; "" if none has. Copies of inputs keep
// the bits that they have.
inline std::string OtherNan(const sdk::Program& program, const std::vector<sdk::PartArray>& seen) {
  const sdk::Program without_copies = sdk::WithoutCopies(program);
  for (size_t o = 0; o < seen.size(); ++o) {
    const bool is_narrow =
        seen[o].dtype == sdk::ValueDtype::kF16 || seen[o].dtype == sdk::ValueDtype::kBf16;
    if (!is_narrow || without_copies.outputs[o] < program.input_count) continue;
    for (size_t i = 0; i < seen[o].bytes.size() / sizeof(uint16_t); ++i) {
      uint16_t bits;
      std::memcpy(&bits, seen[o].bytes.data() + i * sizeof(bits), sizeof(bits));
      if (!std::isnan(sdk::PartElement(seen[o], i)) || bits == kComputedNan) continue;
      return fmt::format("output {} element {} is the NaN {:#06x}", o, i, bits);
    }
  }
  return "";
}

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_TESTING_COMPUTED_NANS_H_
