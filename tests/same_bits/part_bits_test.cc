// Parts of programs have the same bits on host memory and on GPUs: both promise one tree of row
// sums and operations that round alike. Functions such as exp are the business of each backend.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "plugins/cuda/testing/part_cases.h"
#include "plugins/cuda/testing/run_part.h"
#include "plugins/host/testing/run_part.h"
#include "plugins/sdk/testing/part_data.h"

namespace cotune {
namespace {

TEST(PartBitsTest, HostAndCudaGiveTheSameBits) {
  const auto variants = cuda::PartVariants(cuda::ExamplePaths());
  size_t compared = 0;
  for (size_t v = 0; v < variants.size(); ++v) {
    const cuda::PartVariant& variant = variants[v];
    if (variant.part.has_functions) continue;
    ++compared;
    for (const uint64_t rows : {1u, 5u}) {
      const sdk::Program program = cuda::WithRows(variant.part.program, rows, rows / 2);
      std::mt19937_64 random(v * 41 + rows);
      const auto inputs = sdk::RandomInputs(program, random, /*with_special=*/rows > 1);
      const cuda::cpu::PartResult on_gpu = cuda::cpu::RunPart(
          cuda::cpu::PartKernelOf(v), variant.shape, program, inputs, {.seed = v + rows});
      EXPECT_EQ(on_gpu.failure, "") << variant.part.name;
      EXPECT_EQ(sdk::Difference(on_gpu.outputs, host::RunPart(program, inputs)), "")
          << variant.part.name << " with " << variant.shape.row_threads << " threads a row, "
          << rows << " rows";
    }
  }
  EXPECT_GT(compared, 150u);
}

}  // namespace
}  // namespace cotune
