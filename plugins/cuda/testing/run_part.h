// Runs the kernel of a part on the CPU, as the backend launches it.
#ifndef COTUNE_PLUGINS_CUDA_TESTING_RUN_PART_H_
#define COTUNE_PLUGINS_CUDA_TESTING_RUN_PART_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plugins/cuda/cpu_runner/kernel_block.h"
#include "plugins/cuda/testing/part_cases.h"
#include "plugins/sdk/program.h"
#include "plugins/sdk/testing/part_builder.h"

namespace cotune::cuda::cpu {

// The kernel of a variant of PartVariants.
PlainFunction PartKernelOf(size_t variant);

struct PartRun {
  size_t shift = 0;             // elements that operands begin behind an aligned address
  unsigned int blocks_max = 3;  // of a launch
  uint64_t seed = 1;            // of the schedule
};

struct PartResult {
  std::vector<sdk::PartArray> outputs;
  std::string failure;  // the launch touched what it must not touch, or did not end
};
PartResult RunPart(PlainFunction kernel, const PartShape& shape, const sdk::Program& program,
                   const std::vector<sdk::PartArray>& inputs, const PartRun& run);

}  // namespace cotune::cuda::cpu

#endif  // COTUNE_PLUGINS_CUDA_TESTING_RUN_PART_H_
