// Compiles fused kernels as the plugin does, and reads the spills from the compiler's log. Needs
// NVRTC and no GPU: COTUNE_NVRTC names the library, else it is looked for.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "core/problem/program_graph.h"
#include "plugins/cuda/compile/nvrtc.h"
#include "plugins/cuda/fused/fused_list.h"
#include "plugins/cuda/fused/leaf_region.h"
#include "plugins/cuda/testing/find_nvrtc.h"
#include "plugins/cuda/testing/region_cases.h"

namespace cotune::cuda {
namespace {

// The most bytes of spills that were seen, rounded up; more is a failure. Shapes are chosen for
// sm_90, and for 2 and 4 ranks. The compiler of CUDA 13.0 spills more for sm_100: elements of 64
// bits, the flagged transport with large chunks, and owners of rows whose elements are loaded one
// by one.
int SpillBytesMax(std::string_view architecture, int world_size) {
  if (architecture == "sm_100") return world_size == 2 ? 500 : world_size == 4 ? 1650 : 8900;
  return world_size == 2 ? 80 : world_size == 4 ? 208 : 1100;
}

// Returns the fault of a kernel; "" if it has none.
std::string Compile(const Nvrtc& nvrtc, const LeafRegion& region, const Choice& choice,
                    const std::string& architecture) {
  KernelUnit unit = UnitOf(region, choice);
  unit.options.emplace_back("--ptxas-options=-v");
  std::string log;
  const auto cubin = nvrtc.Compile(unit.source, architecture, unit.options, &log);
  if (!cubin) return cubin.error().message;
  const size_t at = log.find(fmt::format("Function properties for {}", kKernelSymbol));
  const size_t line = at == std::string::npos ? at : log.find('\n', at);
  int stack = 0;
  int stores = 0;
  int loads = 0;
  const bool is_told =
      line != std::string::npos && std::sscanf(log.c_str() + line,
                                               " %*[^0-9]%d bytes stack frame, %d bytes "
                                               "spill stores, %d",
                                               &stack, &stores, &loads) == 3;
  if (!is_told) return "the log has no line of spills: " + log;
  const int most = SpillBytesMax(architecture, region.problem.world_size);
  if (std::max(stores, loads) <= most) return "";
  return fmt::format("it spills {} bytes", stores + loads);
}

// An architecture and a number of ranks: each is a test, so that shards share the work.
class FusedCompileTest : public testing::TestWithParam<std::tuple<const char*, int>> {};

TEST_P(FusedCompileTest, EveryCaseCompilesWithFewSpills) {
  const std::optional<Nvrtc> nvrtc = FindNvrtc();
  if (!nvrtc) GTEST_SKIP() << "SKIPPED: no NVRTC here; name one by COTUNE_NVRTC";
  const std::string architecture = std::get<0>(GetParam());
  const int world_size = std::get<1>(GetParam());
  if (!IsCompiledHere(architecture)) GTEST_SKIP() << "SKIPPED: `./dev test --all` compiles for it";
  size_t compiled = 0;
  std::set<std::string_view> sources;
  const std::vector<RegionCase> cases = RegionCases();
  for (size_t c = 0; c < cases.size(); ++c) {
    const LeafRegion region = LeafRegionAt(cases[c], 16384, world_size);
    const auto choices = ListFused(region, {.has_pdl = architecture != "sm_80"});
    ASSERT_TRUE(choices.has_value());
    // Each case takes its turn with some of the shapes.
    size_t turn = c;
    for (const Choice& choice : *choices) {
      if (!choice.reason.empty()) continue;
      const bool is_new = sources.insert(choice.spec.source).second;
      if (turn++ % 8 != 0 && !is_new) continue;
      EXPECT_EQ(Compile(*nvrtc, region, choice, architecture), "")
          << cases[c].name << " by " << choice.name << " on " << world_size << " ranks";
      ++compiled;
    }
  }
  EXPECT_GT(compiled, 12u);
  EXPECT_TRUE(sources.contains("all_reduce_two_shot_flagged_leaves.cu"));
  EXPECT_TRUE(world_size == 2 || sources.contains("all_reduce_two_shot_split_rows.cu"));
}

// Threads that wait for all their leaves at once: they are listed for large data.
TEST_P(FusedCompileTest, BatchesCompileWithFewSpills) {
  const std::optional<Nvrtc> nvrtc = FindNvrtc();
  if (!nvrtc) GTEST_SKIP() << "SKIPPED: no NVRTC here; name one by COTUNE_NVRTC";
  const std::string architecture = std::get<0>(GetParam());
  if (!IsCompiledHere(architecture)) GTEST_SKIP() << "SKIPPED: `./dev test --all` compiles for it";
  const int world_size = std::get<1>(GetParam());
  size_t compiled = 0;
  for (const RegionCase& each : RegionCases()) {
    const LeafRegion region = LeafRegionAt(each, 1 << 18, world_size);
    const auto choices = ListFused(region, {.has_pdl = architecture != "sm_80"});
    ASSERT_TRUE(choices.has_value());
    std::set<int> unrolls;
    for (const Choice& choice : *choices) {
      if (!choice.reason.empty() || !choice.name.starts_with("one_shot_batched_leaves")) continue;
      if (!unrolls.insert(choice.spec.unroll).second) continue;
      EXPECT_EQ(Compile(*nvrtc, region, choice, architecture), "")
          << each.name << " by " << choice.name << " on " << world_size << " ranks";
      ++compiled;
    }
  }
  if (world_size == 2) {
    EXPECT_GT(compiled, 20u);
  } else {
    EXPECT_EQ(compiled, 0u);
  }
}

// Rows of a model's width that are no whole leaves, with operations that reduce them and without.
TEST_P(FusedCompileTest, WideOddRowsCompileWithFewSpills) {
  const std::optional<Nvrtc> nvrtc = FindNvrtc();
  if (!nvrtc) GTEST_SKIP() << "SKIPPED: no NVRTC here; name one by COTUNE_NVRTC";
  const std::string architecture = std::get<0>(GetParam());
  if (!IsCompiledHere(architecture)) GTEST_SKIP() << "SKIPPED: `./dev test --all` compiles for it";
  constexpr const char* kSinks[] = {
      "%y = add %s, %b\n%z = relu %y\nreturn %z into %x\n",
      "%y = rms_norm %s, %b, eps=1e-6\nreturn %y into %x\n",
  };
  const int world_size = std::get<1>(GetParam());
  const std::string_view dtype = world_size == 4 ? "f32" : "bf16";
  // Without clusters (sm_80) one block has a whole row: elements of 32 bits from three peers and
  // more need more registers than a thread of 1024 has.
  const bool is_refused = architecture == "sm_80" && world_size == 4;
  size_t compiled = 0;
  for (const char* const sink : kSinks) {
    const auto graph = ProgramGraph::Parse(
        fmt::format("program p\n%x = input {0} [R, 8190]\n%b = input {0} [1, 8190]\n"
                    "%v = add %x, %b\n%s = all_reduce sum %v\n{1}",
                    dtype, sink));
    ASSERT_TRUE(graph.has_value()) << graph.error().ToText();
    const LeafRegion region = LeafRegionAt({"odd", graph->Lower()}, 64, world_size);
    const auto choices = ListFused(region, {.has_pdl = architecture != "sm_80"});
    ASSERT_TRUE(choices.has_value());
    for (const Choice& choice : *choices) {
      if (!choice.reason.empty()) continue;
      EXPECT_EQ(Compile(*nvrtc, region, choice, architecture), "")
          << sink << " by " << choice.name << " of " << dtype << " on " << world_size << " ranks";
      ++compiled;
    }
  }
  if (is_refused) {
    EXPECT_EQ(compiled, 0u);
  } else {
    EXPECT_GE(compiled, architecture == "sm_80" ? 2u : 4u);
  }
}

INSTANTIATE_TEST_SUITE_P(Architectures, FusedCompileTest,
                         testing::Combine(testing::Values("sm_80", "sm_90", "sm_100"),
                                          testing::Values(2, 4, 8)),
                         [](const auto& info) {
                           return fmt::format("{}_{}_ranks", std::get<0>(info.param),
                                              std::get<1>(info.param));
                         });

}  // namespace
}  // namespace cotune::cuda
