// Wrong kernels of regions: the right text with one fault each.
#ifndef COTUNE_PLUGINS_CUDA_TESTING_REGION_MUTANTS_H_
#define COTUNE_PLUGINS_CUDA_TESTING_REGION_MUTANTS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/cuda/testing/region_cases.h"

namespace cotune::cuda {

// The kernels that a fault makes wrong, of those whose text has it.
enum class FaultReach {
  kAll,
  kClusters,  // those in which blocks reduce a row together; the others stay right
  kSome,      // it depends on the shape
};

struct RegionMutant {
  std::string_view name;
  RegionVariant variant;
  // The fault, in the text of the kernel with all headers, generated ones too. The text occurs
  // once. Both are empty for the right kernel.
  std::string replaced;
  std::string by;
  FaultReach reach = FaultReach::kAll;

  bool is_right() const { return replaced.empty(); }
};
// The right kernel in two shapes, several rows of a block and a cluster of two blocks, and faults
// in either. All of them run the case "residual_norm"; columns: those of the texts of the faults, a
// multiple of 8.
std::vector<RegionMutant> RegionMutants(uint32_t columns = 520);
// The same for kernels in which the owner of a row reduces it; they run the case
// "split_residual_norm".
std::vector<RegionMutant> SplitMutants();
// The same for elementwise operations in chunks with flags, and for threads that wait for all their
// leaves at once; they run the case "stream_into_residual".
std::vector<RegionMutant> FlaggedMutants();
// All of them, in this order.
std::vector<RegionMutant> AllMutants();

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_TESTING_REGION_MUTANTS_H_
