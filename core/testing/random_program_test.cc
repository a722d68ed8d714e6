// The random programs have every operation, dtype and shape of use, and results that the evaluator
// knows well: a test with them would else prove less than it says.
#include "core/testing/random_program.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "core/problem/bounded.h"
#include "core/problem/program.h"
#include "core/problem/program_data.h"
#include "core/problem/program_evaluator.h"
#include "fmt/format.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

constexpr uint64_t kPrograms = 1000;
constexpr int kRanks = 3;

void CountNodes(const ProgramGraph& graph, std::map<std::string, int>& seen) {
  std::map<std::string, int> here;
  size_t behind_others = 0;
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    const ProgramNode& node = graph.nodes()[i];
    const ValueType& type = graph.type(graph.value_of_node(i));
    if (const auto* collective = std::get_if<CollectiveNode>(&node)) {
      ++here[std::string(Name(collective->collective))];
      ++here[fmt::format("{} of {}", Name(collective->reduction), Name(type.dtype))];
      ++here[fmt::format("moves {}", Name(type.dtype))];
      if (type.rows == Rows::kOne) ++here["collective of one row"];
      if (graph.is_input(collective->operand)) ++behind_others;
      continue;
    }
    const auto& compute = std::get<ComputeNode>(node);
    ++here[std::string(Name(compute.op))];
    if (compute.op == Op::kCast) {
      const Dtype from = graph.type(compute.operands[0].value).dtype;
      ++here[fmt::format("cast from {}", Name(from))];
      ++here[fmt::format("cast to {}", Name(compute.to))];
    }
    if (compute.op == Op::kQuantize) ++here[fmt::format("quantize to {}", Name(compute.to))];
  }
  ++here[fmt::format("{} collectives", std::min<size_t>(graph.collectives().size(), 4))];
  ++here[fmt::format("{} collectives of inputs", behind_others)];
  for (const ProgramOutput& output : graph.outputs()) {
    if (output.into < 0) continue;
    ++here["in place"];
    for (const size_t index : graph.collectives()) {
      const auto& node = std::get<CollectiveNode>(graph.nodes()[index]);
      if (node.operand != output.into) continue;
      ++here["a collective's input is overwritten"];
      if (graph.value_of_node(index) == output.value) ++here["a collective in place"];
    }
  }
  for (const auto& [name, count] : here) ++seen[name];
}

TEST(RandomProgramTest, EveryOperationDtypeAndUseOccurs) {
  std::map<std::string, int> seen;
  for (uint64_t seed = 0; seed < kPrograms; ++seed) {
    const std::string text = RandomProgram(seed, kRanks, kAnyCollectives);
    const Result<ProgramGraph> graph = ProgramGraph::Parse(text);
    ASSERT_TRUE(graph.has_value()) << seed << ": " << graph.error().ToText() << "\n" << text;
    EXPECT_TRUE(graph->has_rows()) << text;
    CountNodes(*graph, seen);
  }
  std::vector<std::string> wanted = {"in place", "a collective's input is overwritten",
                                     "a collective in place", "collective of one row"};
  for (const OpTraits& op : AllOps()) wanted.emplace_back(op.name);
  for (const char* collective :
       {"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"}) {
    wanted.emplace_back(collective);
  }
  for (const int count : {1, 2, 3, 4}) wanted.push_back(fmt::format("{} collectives", count));
  for (const int count : {2, 3}) wanted.push_back(fmt::format("{} collectives of inputs", count));
  for (const char* dtype :
       {"f32", "f64", "f16", "bf16", "i32", "i64", "u8", "i8", "f8_e4m3", "f8_e5m2"}) {
    for (const char* use : {"moves", "cast from", "cast to"}) {
      wanted.push_back(fmt::format("{} {}", use, dtype));
    }
  }
  for (const char* dtype : {"f32", "f64", "f16", "bf16", "i32", "i64", "u8"}) {
    for (const char* reduction : {"sum", "product", "min", "max"}) {
      wanted.push_back(fmt::format("{} of {}", reduction, dtype));
    }
  }
  for (const char* dtype : {"f32", "f64", "f16", "bf16", "i32", "i64"}) {
    wanted.push_back(fmt::format("average of {}", dtype));
  }
  for (const char* dtype : {"i8", "f8_e4m3", "f8_e5m2"}) {
    wanted.push_back(fmt::format("quantize to {}", dtype));
  }
  for (const std::string& each : wanted) EXPECT_GE(seen[each], 3) << each;
}

// Elements whose bound is wider than 1/16 of the output's largest number, or that may be anything.
struct Looseness {
  uint64_t elements = 0;
  uint64_t loose = 0;
  uint64_t open = 0;
};

void Count(const EvaluatedValue& value, Looseness& looseness) {
  double largest = 0;
  for (const Bounded& each : value.floats) {
    if (std::isfinite(each.value)) largest = std::max(largest, std::fabs(each.value));
  }
  for (const int64_t each : value.integers) {
    largest = std::max(largest, std::fabs(static_cast<double>(each)));
  }
  const auto count = [&](double bound, bool is_open) {
    ++looseness.elements;
    if (is_open) ++looseness.open;
    if (is_open || bound > largest / 16) ++looseness.loose;
  };
  for (const Bounded& each : value.floats) {
    count(each.bound, each.bound == kInfinity || !std::isfinite(each.value));
  }
  for (size_t i = 0; i < value.integers.size(); ++i) {
    const uint64_t bound = value.integer_bounds.empty() ? 0 : value.integer_bounds[i];
    // The next small integer is right, too, where floats computed it.
    count(static_cast<double>(bound > 0 ? bound - 1 : 0), bound > uint64_t{1} << 60);
  }
}

TEST(RandomProgramTest, CollectivesCanBeLimited) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = RandomProgram(seed, kRanks, 1);
    EXPECT_EQ(ProgramGraph::Parse(text).value().collectives().size(), 1u) << text;
    EXPECT_EQ(text, RandomProgram(seed, kRanks, 1));
  }
}

TEST(RandomProgramTest, TheEvaluatorKnowsNearlyEveryElement) {
  Looseness all;
  for (uint64_t seed = 0; seed < kPrograms / 4; ++seed) {
    const std::string text = RandomProgram(seed, kRanks, kAnyCollectives);
    const ProgramGraph graph = ProgramGraph::Parse(text).value();
    const Program program = Program::Bind(graph, {MemoryKind::kHost, kRanks, kRanks}).value();
    const ProgramDataSet data{.rows = 9, .world_size = kRanks, .salt = 1};
    std::vector<std::vector<std::vector<std::byte>>> inputs(kRanks);
    for (int rank = 0; rank < kRanks; ++rank) {
      for (size_t i = 0; i < graph.inputs().size(); ++i) {
        const auto value = static_cast<ValueIndex>(i);
        const ValueType& type = graph.type(value);
        inputs[static_cast<size_t>(rank)].push_back(
            RepeatedRows(InputPeriod(graph, i, rank, data), type.columns * SizeBytes(type.dtype),
                         program.RowsOf(value, data.rows)));
      }
    }
    const auto results = EvaluateProgram(graph, data.rows, kRanks, inputs).value();
    for (const EvaluatedValue& output : results[0]) Count(output, all);
  }
  EXPECT_LT(all.open * 100, all.elements) << all.open << " of " << all.elements;
  EXPECT_LT(all.loose * 30, all.elements) << all.loose << " of " << all.elements;
}

}  // namespace
}  // namespace cotune
