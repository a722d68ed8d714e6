// The compiler that puts faults into kernels: each fault of region_mutants.h gets into the kernels
// that have its text, compiles, and gives other code than the right kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plugins/cuda/compile/nvrtc.h"
#include "plugins/cuda/fused/fused_list.h"
#include "plugins/cuda/fused/leaf_region.h"
#include "plugins/cuda/testing/find_nvrtc.h"
#include "plugins/cuda/testing/region_cases.h"
#include "plugins/cuda/testing/region_mutants.h"

namespace cotune::cuda {
namespace {

namespace fs = std::filesystem;
using ::testing::SizeIs;

class FaultyNvrtcTest : public testing::Test {
 protected:
  FaultyNvrtcTest() : faults_(fs::path(std::getenv("TEST_TMPDIR")) / "faults") {
    setenv("FAULTY_NVRTC_KERNELS_FILE", faults_.c_str(), 1);
  }

  void SetFault(std::string_view replaced, std::string_view by) const {
    fs::remove(faults_);
    setenv("FAULTY_NVRTC_REPLACED", std::string(replaced).c_str(), 1);
    setenv("FAULTY_NVRTC_BY", std::string(by).c_str(), 1);
  }
  // The kernels that have had the fault, since it was set.
  std::vector<std::string> Kernels() const {
    std::ifstream file(faults_);
    std::vector<std::string> kernels;
    for (std::string line; std::getline(file, line);) kernels.push_back(line);
    return kernels;
  }

 private:
  const fs::path faults_;
};

TEST_F(FaultyNvrtcTest, PutsEachFaultIntoTheKernelsThatATuneRuns) {
  const std::optional<Nvrtc> real = FindNvrtc();
  if (!real) GTEST_SKIP() << "SKIPPED: no NVRTC here; name one by COTUNE_NVRTC";
  setenv("FAULTY_NVRTC_REAL", real->path().c_str(), 1);
  const auto faulty = Nvrtc::Open(fs::absolute("tests/gpu/libfaulty_nvrtc.so"), {});
  ASSERT_TRUE(faulty.has_value()) << faulty.error().message;
  ASSERT_NE(faulty->path(), real->path());
  EXPECT_EQ(faulty->version(), real->version());
  // Each fault is in the kernels of its width.
  std::set<std::string> found;
  for (const uint32_t columns : {520u, 4096u}) {
    const LeafRegion region = LeafRegionAt(ResidualNormCase(columns), 17, 2);
    const auto choices = ListFused(region, {.has_pdl = true});
    ASSERT_TRUE(choices.has_value());
    for (const Choice& choice : *choices) {
      // Some shapes are enough, to save the compiler's time.
      if (!choice.reason.empty() || choice.spec.row_blocks == 2) continue;
      const KernelUnit unit = UnitOf(region, choice);
      SetFault("", "");
      const auto right = faulty->Compile(unit.source, "sm_90", unit.options);
      ASSERT_TRUE(right.has_value()) << right.error().message;
      EXPECT_TRUE(Kernels().empty());
      const auto by_real = real->Compile(unit.source, "sm_90", unit.options);
      ASSERT_TRUE(by_real.has_value());
      EXPECT_TRUE(*right == *by_real) << choice.name;
      for (const RegionMutant& mutant : RegionMutants(columns)) {
        if (mutant.is_right() || (mutant.variant.row_blocks > 1) != (choice.spec.row_blocks > 1)) {
          continue;
        }
        SetFault(mutant.replaced, mutant.by);
        const auto wrong = faulty->Compile(unit.source, "sm_90", unit.options);
        ASSERT_TRUE(wrong.has_value()) << mutant.name << ": " << wrong.error().message;
        EXPECT_THAT(Kernels(), SizeIs(1)) << mutant.name;
        if (*wrong != *right) found.emplace(mutant.name);
      }
    }
  }
  size_t faults = 0;
  for (const RegionMutant& mutant : RegionMutants()) faults += mutant.is_right() ? 0 : 1;
  EXPECT_THAT(found, SizeIs(faults));
}

}  // namespace
}  // namespace cotune::cuda
