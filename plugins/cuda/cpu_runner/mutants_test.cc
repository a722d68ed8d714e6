// Wrong kernels cannot win: the check that a tune makes finds each fault of region_mutants.h, on
// the data of a tune.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/problem/evaluated_value.h"
#include "core/problem/program_data.h"
#include "core/problem/program_evaluator.h"
#include "plugins/cuda/cpu_runner/fused_mutants.h"
#include "plugins/cuda/testing/part_graph.h"
#include "plugins/cuda/testing/region_cases.h"
#include "plugins/cuda/testing/region_mutants.h"
#include "plugins/cuda/testing/run_region.h"

namespace cotune::cuda::cpu {
namespace {

// More rows than the data has before it repeats, so that all of its kinds of rows are there; an odd
// number, so that the last step lacks rows.
constexpr uint64_t kRows = 17;

using BytesOfRanks = std::vector<std::vector<std::vector<std::byte>>>;

BytesOfRanks TuneData(const ProgramGraph& graph, int world_size) {
  BytesOfRanks ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    auto& inputs = ranks.emplace_back();
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      const ValueType& type = graph.type(static_cast<ValueIndex>(i));
      const uint64_t rows = type.rows == Rows::kOne ? 1 : kRows;
      const ProgramDataSet set = {.rows = kRows, .world_size = world_size, .salt = 1};
      inputs.push_back(RepeatedRows(InputPeriod(graph, i, rank, set),
                                    SizeBytes(type.dtype) * type.columns, rows));
    }
  }
  return ranks;
}

OfRanks ArraysOf(const sdk::Program& program, const BytesOfRanks& ranks) {
  OfRanks arrays;
  for (const auto& inputs : ranks) {
    auto& of_rank = arrays.emplace_back();
    for (size_t i = 0; i < inputs.size(); ++i) {
      of_rank.push_back({program.values[i].dtype, inputs[i]});
    }
  }
  return arrays;
}

// The share of wrong elements, of the output and rank that have the largest.
double WorstShare(const std::vector<std::vector<EvaluatedValue>>& expected, const OfRanks& seen) {
  double worst = 0;
  for (size_t r = 0; r < expected.size(); ++r) {
    for (size_t o = 0; o < expected[r].size(); ++o) {
      const EvaluatedValue& value = expected[r][o];
      const auto wrong = static_cast<double>(CountWrong(value, seen[r][o].bytes));
      worst = std::max(worst, wrong / static_cast<double>(value.elements()));
    }
  }
  return worst;
}

// The share of wrong elements after one call of the kernel on all ranks.
double WorstShareOf(const RegionMutant& mutant, PlainFunction kernel, uint64_t seed) {
  const RegionVariant& variant = mutant.variant;
  const RegionCase region = RegionCases()[variant.number_of_case];
  const sdk::Program program = RegionOf(region.graph, kRows, variant.world_size);
  const LeafRegion leaves = LeafRegionAt(region, kRows, variant.world_size);
  const BytesOfRanks data = TuneData(region.graph, variant.world_size);
  FusedCall call(leaves, program, ArraysOf(program, data), variant, {.seed = seed});
  const CallRecord record = RecordOf(region.name, leaves.problem.count, 0);
  RanksOnCpu ranks(variant.world_size);
  const bool has_ended =
      ranks.Run([&](int rank) { call.Launch(ranks, rank, kernel, record); }, seed);
  // The values alone are wrong: neither the protocol nor a guard may show the fault.
  EXPECT_EQ(FailureOf(ranks, has_ended), "") << mutant.name;
  EXPECT_EQ(call.Damage(), "") << mutant.name;
  const auto expected = EvaluateProgram(region.graph, kRows, variant.world_size, data);
  EXPECT_TRUE(expected.has_value());
  return expected ? WorstShare(*expected, call.Outputs()) : -1;
}

TEST(MutantsTest, TheCheckOfATuneFindsEveryFault) {
  const std::vector<RegionMutant> mutants = AllMutants();
  ASSERT_EQ(kFusedMutants.size(), mutants.size());
  std::set<std::pair<std::string_view, int>> right_shapes;
  for (size_t m = 0; m < mutants.size(); ++m) {
    const double share = WorstShareOf(mutants[m], kFusedMutants[m], m);
    fmt::print("{:>6.2f} % wrong: {}\n", 100 * share, mutants[m].name);
    const std::pair shape(mutants[m].variant.algorithm, mutants[m].variant.row_blocks);
    if (mutants[m].is_right()) {
      EXPECT_EQ(share, 0) << mutants[m].name;
      right_shapes.insert(shape);
      continue;
    }
    EXPECT_GE(share, 0.01) << mutants[m].name;
    // The fault alone makes the difference: the right kernel of its shape ran before.
    EXPECT_TRUE(right_shapes.contains(shape)) << mutants[m].name;
  }
}

}  // namespace
}  // namespace cotune::cuda::cpu
