// Prints the faults of kernels that a tune has to find, as JSON: nvrtc, the path of the compiler
// here; faults [{name, replaced, by, columns, wrong, ranks_min}]. columns: those of the rows whose
// kernels have the fault. wrong: the kernels that it makes wrong, of those whose text has it:
// "all", "clusters" or "some". ranks_min: the fewest ranks with such kernels. The case
// `kernel_fault` of calls runs the program that shows them.
#include <cstdint>
#include <cstdio>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "gpu/driver/library_search.h"
#include "nlohmann/json.hpp"
#include "plugins/cuda/compile/nvrtc.h"
#include "plugins/cuda/testing/region_mutants.h"

namespace {

namespace cuda = cotune::cuda;

// Rows that several blocks reduce together, and rows of which a block has several.
constexpr uint32_t kClusterColumns = 4096;
constexpr uint32_t kShortColumns = 520;

std::string_view NameOf(cuda::FaultReach reach) {
  switch (reach) {
    case cuda::FaultReach::kAll:
      return "all";
    case cuda::FaultReach::kClusters:
      return "clusters";
    case cuda::FaultReach::kSome:
      break;
  }
  return "some";
}

// Lists faults that were not listed before.
class FaultList {
 public:
  void Add(const cuda::RegionMutant& mutant, uint32_t columns, int ranks_min) {
    if (mutant.is_right() || !known_.emplace(mutant.replaced, mutant.by).second) return;
    faults_.push_back({{"name", mutant.name},
                       {"replaced", mutant.replaced},
                       {"by", mutant.by},
                       {"columns", columns},
                       {"wrong", NameOf(mutant.reach)},
                       {"ranks_min", ranks_min}});
  }
  const nlohmann::json& faults() const { return faults_; }

 private:
  std::set<std::pair<std::string, std::string>> known_;
  nlohmann::json faults_ = nlohmann::json::array();
};

}  // namespace

int main() {
  const auto nvrtc = cuda::Nvrtc::Open("", cotune::gpu::OwnEnvironment());
  if (!nvrtc) {
    std::fprintf(stderr, "error: %s\n", nvrtc.error().message.c_str());
    return 3;
  }
  FaultList list;
  for (const cuda::RegionMutant& mutant : cuda::RegionMutants(kClusterColumns)) {
    list.Add(mutant, mutant.variant.row_blocks > 1 ? kClusterColumns : kShortColumns, 2);
  }
  // Owners reduce rows from 3 ranks on.
  for (const cuda::RegionMutant& mutant : cuda::SplitMutants()) {
    list.Add(mutant, kClusterColumns, 3);
  }
  const nlohmann::json all = {{"nvrtc", nvrtc->path()}, {"faults", list.faults()}};
  std::printf("%s\n", all.dump().c_str());
  return 0;
}
