// Parts of programs have the same bits on host memory and on GPUs: both promise one tree of row
// sums and operations that round alike. Functions such as exp are the business of each backend.
#include <gtest/gtest.h>

#include <algorithm>
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

// A value that leaves a part is rounded for the nodes that read it in the same part, so that bits
// do not depend on the place of a cut: another cut may win at another size of the batch.
template <typename Run>
void ExpectSameBitsWhereverAPartIsCut(const Run& run) {
  for (const cuda::CutPart& cut : cuda::CutParts()) {
    for (const uint64_t rows : {1u, 5u}) {
      const auto run_rows = [&](const std::string& suffix, const sdk::Program& part,
                                const std::vector<sdk::PartArray>& inputs) {
        return run(cut.name + suffix, cuda::WithRows(part, rows, 0), inputs);
      };
      std::mt19937_64 random(rows);
      const auto inputs = sdk::RandomInputs(cuda::WithRows(cut.whole, rows, 0), random,
                                            /*with_special=*/false);
      const auto at_once = run_rows("_whole", cut.whole, inputs);
      const auto stream = run_rows("_front", cut.front, {inputs[0], inputs[1]});
      const auto y = run_rows("_behind", cut.behind, {stream.at(0), inputs[2]});
      EXPECT_EQ(sdk::Difference(at_once, {y.at(0), stream.at(0)}), "")
          << cut.name << " with " << rows << " rows";
    }
  }
}

TEST(PartBitsTest, ThePlaceOfACutChangesNoBitOnTheHost) {
  ExpectSameBitsWhereverAPartIsCut(
      [](const std::string& /*name*/, const sdk::Program& part,
         const std::vector<sdk::PartArray>& inputs) { return host::RunPart(part, inputs); });
}

TEST(PartBitsTest, ThePlaceOfACutChangesNoBitOnTheGpu) {
  const auto variants = cuda::PartVariants(cuda::ExamplePaths());
  ExpectSameBitsWhereverAPartIsCut([&](const std::string& name, const sdk::Program& part,
                                       const std::vector<sdk::PartArray>& inputs) {
    const auto found =
        std::find_if(variants.begin(), variants.end(),
                     [&](const cuda::PartVariant& each) { return each.part.name == name; });
    const cuda::cpu::PartResult result =
        cuda::cpu::RunPart(cuda::cpu::PartKernelOf(found - variants.begin()), found->shape, part,
                           inputs, {.seed = part.values[0].rows});
    EXPECT_EQ(result.failure, "") << name;
    return result.outputs;
  });
}

}  // namespace
}  // namespace cotune
