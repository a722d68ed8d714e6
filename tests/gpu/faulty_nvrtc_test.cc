// The compiler that puts faults into kernels: each fault of region_mutants.h gets into the kernels
// that have its text, compiles, and gives other code than the right kernel.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/problem/program_graph.h"
#include "fmt/format.h"
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
  static sdk::Result<Nvrtc> OpenFaulty(const Nvrtc& real) {
    setenv("FAULTY_NVRTC_REAL", real.path().c_str(), 1);
    return Nvrtc::Open(fs::absolute("tests/gpu/libfaulty_nvrtc.so"), {});
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

// The sum and the addition of the program that a tune runs with wrong kernels (api_program.cc), as
// leaves, and with the norm, as rows.
LeafRegion RegionOfTune(uint32_t columns, bool has_norm, int world_size) {
  const auto graph = ProgramGraph::Parse(fmt::format(
      "%x = input bf16 [R, {0}]\n%residual = input bf16 [R, {0}] replicated\n{1}"
      "%sum = all_reduce sum %x\n%stream = add %sum, %residual\n{2}%stream into %residual\n",
      columns, has_norm ? fmt::format("%gamma = input bf16 [1, {}] replicated\n", columns) : "",
      has_norm ? "%y = rms_norm %stream, %gamma, eps=1e-6\nreturn %y, " : "return "));
  EXPECT_TRUE(graph.has_value()) << graph.error().ToText();
  // So many rows that every kernel is listed.
  return LeafRegionAt({"of a tune", graph->Lower()}, 257, world_size);
}

TEST_F(FaultyNvrtcTest, PutsEachFaultIntoTheKernelsThatATuneRuns) {
  const std::optional<Nvrtc> real = FindNvrtc();
  if (!real) GTEST_SKIP() << "SKIPPED: no NVRTC here; name one by COTUNE_NVRTC";
  const auto faulty = OpenFaulty(*real);
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

// The kernels with a fault, of the rows and of the leaves that a tune on 3 ranks compiles.
struct FaultyKernels {
  std::string_view fault;
  std::vector<std::string> kernels;
};
std::vector<FaultyKernels> KnownKernels() {
  const std::string one_shot = "all_reduce_one_shot_rows.cu";
  const std::string two_shot = "all_reduce_two_shot_rows.cu";
  const std::string split = "all_reduce_two_shot_split_rows.cu";
  return {
      {"gamma of the leaf before",
       {"all_reduce_one_shot_leaves.cu", one_shot, "all_reduce_two_shot_flagged_leaves.cu",
        "all_reduce_two_shot_leaves.cu", two_shot, split}},
      {"own operand instead of the sum", {one_shot, two_shot, split}},
      {"residual read after it was overwritten", {one_shot, two_shot}},
  };
}

TEST_F(FaultyNvrtcTest, NamesTheKernelsThatIncludeAFault) {
  const std::optional<Nvrtc> real = FindNvrtc();
  if (!real) GTEST_SKIP() << "SKIPPED: no NVRTC here; name one by COTUNE_NVRTC";
  const auto faulty = OpenFaulty(*real);
  ASSERT_TRUE(faulty.has_value()) << faulty.error().message;
  struct RightKernel {
    KernelUnit unit;
    std::string code;
  };
  std::map<std::string, RightKernel> kernels;  // by file
  for (const bool has_norm : {true, false}) {
    const LeafRegion region = RegionOfTune(4096, has_norm, 3);
    const auto choices = ListFused(region, {.has_pdl = true});
    ASSERT_TRUE(choices.has_value());
    for (const Choice& choice : *choices) {
      if (!choice.reason.empty()) continue;
      const KernelUnit unit = UnitOf(region, choice);
      if (kernels.contains(unit.source.name)) continue;
      SetFault("", "");
      const auto right = faulty->Compile(unit.source, "sm_90", unit.options);
      ASSERT_TRUE(right.has_value()) << right.error().message;
      kernels.emplace(unit.source.name, RightKernel{unit, *right});
    }
  }
  ASSERT_THAT(kernels, SizeIs(6));
  const std::vector<RegionMutant> mutants = RegionMutants(4096);
  for (const FaultyKernels& known : KnownKernels()) {
    const auto mutant = std::find_if(mutants.begin(), mutants.end(),
                                     [&](const auto& each) { return each.name == known.fault; });
    ASSERT_NE(mutant, mutants.end()) << known.fault;
    for (const auto& [name, right] : kernels) {
      SetFault(mutant->replaced, mutant->by);
      const auto wrong = faulty->Compile(right.unit.source, "sm_90", right.unit.options);
      ASSERT_TRUE(wrong.has_value()) << known.fault << ": " << wrong.error().message;
      const bool has_fault =
          std::find(known.kernels.begin(), known.kernels.end(), name) != known.kernels.end();
      EXPECT_EQ(Kernels(), has_fault ? std::vector{name} : std::vector<std::string>())
          << known.fault;
      EXPECT_EQ(*wrong != right.code, has_fault) << known.fault << " in " << name;
    }
  }
}

}  // namespace
}  // namespace cotune::cuda
