// The regions of random programs on GPUs: most programs with an all_reduce and an operation after
// it that reduces rows have a kernel that runs both, and each refusal has a reason.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/problem/program.h"
#include "core/problem/program_graph.h"
#include "core/recipe/make_recipe.h"
#include "core/testing/random_program.h"
#include "fmt/format.h"
#include "fusion/fusion_recipes.h"
#include "gtest/gtest.h"
#include "plugins/cuda/fused/fused_list.h"
#include "plugins/cuda/fused/leaf_region.h"
#include "plugins/cuda/testing/part_graph.h"

namespace cotune::cuda {
namespace {

constexpr uint64_t kPrograms = 1000;
constexpr uint64_t kRows = 16;

// Returns true if an operation that follows from the collective reduces rows of several columns.
bool ReducesRowsAfterCollective(const ProgramGraph& graph) {
  const ProgramGraph lowered = graph.Lower();
  std::set<ValueIndex> followers;
  for (size_t n = 0; n < lowered.nodes().size(); ++n) {
    const ProgramNode& node = lowered.nodes()[n];
    const std::vector<ValueIndex> read = ValuesReadBy(node);
    const bool follows = std::any_of(read.begin(), read.end(),
                                     [&](ValueIndex value) { return followers.contains(value); });
    const auto* compute = std::get_if<ComputeNode>(&node);
    if (compute == nullptr || follows) followers.insert(lowered.value_of_node(n));
    if (compute == nullptr || !follows) continue;
    const bool reduces = compute->op == Op::kRowSum || compute->op == Op::kRowMax;
    if (reduces && lowered.type(read.front()).columns > 1) return true;
  }
  return false;
}

bool HasOneAllReduce(const ProgramGraph& graph) {
  if (graph.collectives().size() != 1) return false;
  const ProgramNode& node = graph.nodes()[graph.collectives().front()];
  return std::get<CollectiveNode>(node).collective == Collective::kAllReduce;
}

// The graphs of the regions of the program's only collective. Each region that the program cannot
// have has a reason.
std::vector<ProgramGraph> RegionGraphs(const ProgramGraph& graph, int world_size,
                                       const FusionRules& rules) {
  const Program program = Program::Bind(graph, {MemoryKind::kCuda, world_size, world_size}).value();
  const FormList list = FusionRecipes().Forms(program, kRows, rules);
  for (const Refusal& refusal : list.refusals) EXPECT_NE(refusal.reason, "") << refusal.choice;
  std::vector<ProgramGraph> graphs;
  for (const Region& region : list.forms.front().positions.front().regions) {
    const Recipe recipe = MakeRecipe(graph, std::array{region}).value();
    graphs.push_back(recipe.steps[recipe.backend_steps().front()].program);
  }
  return graphs;
}

// Why no kernel runs the region; nothing if one does.
std::optional<std::string> WhyRefused(const ProgramGraph& graph, int world_size) {
  const auto region = LeafRegionOf(RegionOf(graph.Lower(), kRows, world_size));
  if (!region) return region.error().message;
  const auto choices = ListFused(*region, {});
  if (!choices) return choices.error().message;
  EXPECT_TRUE(region->has_rows() || !ReducesRowsAfterCollective(graph)) << graph.ToText();
  std::string reason;
  for (const Choice& choice : *choices) {
    if (choice.reason.empty()) return std::nullopt;
    reason = choice.reason;
  }
  return reason;
}

std::string WithoutNumbers(std::string text) {
  for (char& each : text) {
    if (each >= '0' && each <= '9') each = '#';
  }
  return text;
}

struct Coverage {
  size_t programs = 0;
  size_t with_choice = 0;                 // those for which a kernel runs a region
  size_t with_row_region = 0;             // those that have a region with such an operation
  size_t with_row_kernel = 0;             // and a kernel for one of these regions
  std::map<std::string, size_t> refused;  // those without a choice, by the reason of their last one
};

void Count(const ProgramGraph& graph, int world_size, const FusionRules& rules,
           Coverage& coverage) {
  ++coverage.programs;
  bool has_choice = false;
  bool has_row_region = false;
  bool has_row_kernel = false;
  std::string last_reason = "no region";
  for (const ProgramGraph& region : RegionGraphs(graph, world_size, rules)) {
    const bool has_rows = ReducesRowsAfterCollective(region);
    has_row_region = has_row_region || has_rows;
    const std::optional<std::string> reason = WhyRefused(region, world_size);
    has_choice = has_choice || !reason;
    has_row_kernel = has_row_kernel || (has_rows && !reason);
    if (!reason) continue;
    EXPECT_NE(*reason, "") << region.ToText();
    last_reason = *reason;
  }
  coverage.with_choice += has_choice ? 1 : 0;
  coverage.with_row_region += has_row_region ? 1 : 0;
  coverage.with_row_kernel += has_row_kernel ? 1 : 0;
  if (!has_choice) ++coverage.refused[WithoutNumbers(last_reason)];
}

Coverage CoverageOf(int world_size, const FusionRules& rules) {
  Coverage coverage;
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    const ProgramGraph graph = ProgramGraph::Parse(RandomProgram(seed, world_size, 1)).value();
    if (HasOneAllReduce(graph) && ReducesRowsAfterCollective(graph)) {
      Count(graph, world_size, rules, coverage);
    }
  }
  return coverage;
}

void Print(int world_size, const Coverage& coverage) {
  fmt::print(
      "{} ranks: of {} programs {} have a fused choice, {} a region that reduces rows, {} a "
      "kernel for it; no choice:\n",
      world_size, coverage.programs, coverage.with_choice, coverage.with_row_region,
      coverage.with_row_kernel);
  for (const auto& [reason, count] : coverage.refused) fmt::print("{:>6} {}\n", count, reason);
}

// fusion/ makes no region that would round a value which the program does not round, that is too
// deep, or that would need more memory between the steps.
TEST(RandomRegionTest, MostProgramsThatReduceRowsHaveAFusedChoice) {
  for (const int world_size : {2, 4, 8}) {
    const Coverage coverage = CoverageOf(world_size, {});
    Print(world_size, coverage);
    EXPECT_GE(coverage.programs, kPrograms / 10);
    EXPECT_GE(coverage.with_choice * 100, coverage.programs * 88);
    EXPECT_GE(coverage.with_row_kernel * 100, coverage.with_row_region * 95);
  }
}

// The default of max_fusion_depth leaves most of the others without a region; 8 is its largest
// value.
TEST(RandomRegionTest, NearlyAllHaveAFusedChoiceIfRegionsMayBeDeep) {
  for (const int world_size : {2, 8}) {
    const Coverage coverage = CoverageOf(world_size, FusionRules{.max_depth = 8});
    Print(world_size, coverage);
    EXPECT_GE(coverage.with_choice * 100, coverage.programs * 98);
    EXPECT_GE(coverage.with_row_kernel * 100, coverage.programs * 93);
  }
}

}  // namespace
}  // namespace cotune::cuda
