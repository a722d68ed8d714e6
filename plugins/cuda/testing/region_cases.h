// Regions that tests of the fused kernels compile and run.
#ifndef COTUNE_PLUGINS_CUDA_TESTING_REGION_CASES_H_
#define COTUNE_PLUGINS_CUDA_TESTING_REGION_CASES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/problem/program_graph.h"
#include "plugins/cuda/compile/kernel_spec.h"
#include "plugins/cuda/fused/leaf_region.h"

namespace cotune::cuda {

struct RegionCase {
  std::string name;
  ProgramGraph graph;          // lowered
  bool has_functions = false;  // its results are not exact, but within bounds
};
// Elementwise operations on each side and on both, of several dtypes, reductions and shapes;
// buckets; and operations that reduce rows.
std::vector<RegionCase> RegionCases();
// The case "residual_norm", which has 520 columns, with others.
RegionCase ResidualNormCase(uint32_t columns);

// A kernel of a case, as it is compiled for the CPU.
struct RegionVariant {
  size_t number_of_case = 0;  // in RegionCases
  std::string_view algorithm;
  int world_size = 2;
  int unroll = 1;
  // The kernel of a region that has rows runs in this shape alone; other kernels run in any shape.
  int row_threads = 0;
  int row_blocks = 1;
  int threads = 0;               // a block has so many
  std::string_view transport{};  // "": the one that fits the dtype
};
std::vector<RegionVariant> RegionVariants();

LeafRegion LeafRegionAt(const RegionCase& region, uint64_t rows, int world_size);
// The specification of a variant's kernel.
KernelSpec SpecOf(const RegionVariant& variant, const LeafRegion& region);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_TESTING_REGION_CASES_H_
