// Prints the faults of kernels that a tune has to find, as JSON: nvrtc, the path of the compiler
// here; faults [{name, replaced, by, columns, is_generated}]. columns: those of the rows whose
// kernels have the fault. is_generated: the fault is in the generated text of the region, which all
// kernels of the region have. The case `kernel_fault` of calls runs the program that shows them.
#include <cstdint>
#include <cstdio>
#include <string>

#include "gpu/driver/library_search.h"
#include "nlohmann/json.hpp"
#include "plugins/cuda/compile/nvrtc.h"
#include "plugins/cuda/fused/leaf_region.h"
#include "plugins/cuda/testing/region_cases.h"
#include "plugins/cuda/testing/region_mutants.h"

namespace {

// Rows that several blocks reduce together, and rows of which a block has several.
constexpr uint32_t kClusterColumns = 4096;
constexpr uint32_t kShortColumns = 520;

}  // namespace

int main() {
  namespace cuda = cotune::cuda;
  const auto nvrtc = cuda::Nvrtc::Open("", cotune::gpu::OwnEnvironment());
  if (!nvrtc) {
    std::fprintf(stderr, "error: %s\n", nvrtc.error().message.c_str());
    return 3;
  }
  nlohmann::json faults = nlohmann::json::array();
  for (const cuda::RegionMutant& mutant : cuda::RegionMutants(kClusterColumns)) {
    const bool is_of_clusters = mutant.variant.row_blocks > 1;
    const uint32_t columns = is_of_clusters ? kClusterColumns : kShortColumns;
    const std::string generated =
        cuda::LeafRegionText(cuda::LeafRegionAt(cuda::ResidualNormCase(columns), 1, 2));
    if (mutant.is_right()) continue;
    faults.push_back({{"name", mutant.name},
                      {"replaced", mutant.replaced},
                      {"by", mutant.by},
                      {"columns", columns},
                      {"is_generated", generated.find(mutant.replaced) != std::string::npos}});
  }
  const nlohmann::json all = {{"nvrtc", nvrtc->path()}, {"faults", faults}};
  std::printf("%s\n", all.dump().c_str());
  return 0;
}
