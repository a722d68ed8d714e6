// The bounds of programs as they are used: wide enough for nothing but what is right. Each program
// is changed in a way that a wrong kernel could be wrong, and the results of the changed one must
// be found wrong.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/problem/bounded.h"
#include "core/problem/program_data.h"
#include "core/problem/program_evaluator.h"
#include "core/testing/graph_builder.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using Inputs = std::vector<std::vector<std::vector<std::byte>>>;
using Outputs = std::vector<std::vector<EvaluatedValue>>;

constexpr int kRanks = 4;
constexpr uint64_t kRowCount = 64;
constexpr uint32_t kColumns = 264;

// What can be left out or done twice in a graph.
struct Change {
  bool has_residual = true;
  double eps = 1e-6;
  int scalings = 1;
};

// Where an input comes from: shifted by rows or columns, or of another rank.
struct Source {
  int rank;
  uint64_t row_shift = 0;
  uint64_t column_shift = 0;
};

// An input as checks have it, from where `source` says.
std::vector<std::byte> InputFrom(const ProgramGraph& graph, size_t input, Source source) {
  const ProgramDataSet data{.rows = kRowCount, .world_size = kRanks};
  const ValueType& type = graph.inputs()[input].type;
  const uint64_t element = SizeBytes(type.dtype);
  const uint64_t row = type.columns * element;
  const uint64_t rows = type.rows == Rows::kOne   ? 1
                        : type.rows == Rows::kAll ? kRowCount
                                                  : kRowCount / kRanks;
  std::vector<std::byte> bytes =
      RepeatedRows(InputPeriod(graph, input, source.rank, data), row, rows);
  const auto rotate = [](auto first, uint64_t by, uint64_t size) {
    std::rotate(first, first + static_cast<ptrdiff_t>(by), first + static_cast<ptrdiff_t>(size));
  };
  rotate(bytes.begin(), source.row_shift * row, bytes.size());
  for (uint64_t i = 0; i < rows; ++i) {
    rotate(bytes.begin() + static_cast<ptrdiff_t>(i * row), source.column_shift * element, row);
  }
  return bytes;
}

// A program. `change` gives another graph with the same inputs.
struct Example {
  std::string name;
  ProgramGraph (*graph)(const Change& change);
};

// Zeros in place of a value, which stays in use.
ValueIndex Nothing(GraphBuilder& builder, ValueIndex value) {
  return builder.Compute(Op::kMul, {Of(value), Literally(0)});
}

ProgramGraph TpLinear(const Change& change) {
  GraphBuilder builder;
  const ValueIndex x = builder.Input(Dtype::kBf16, Rows::kAll, kColumns);
  const ValueIndex bias = builder.Input(Dtype::kBf16, Rows::kOne, kColumns, true);
  ValueIndex y = builder.Collect(Collective::kAllReduce, x, Reduction::kSum);
  y = builder.Compute(Op::kAdd, {Of(y), Of(change.has_residual ? bias : Nothing(builder, bias))});
  return builder.Finish({{builder.Compute(Op::kRelu, {Of(y)}), -1}});
}

struct Stream {
  ValueIndex value;
  ValueIndex gamma;
};

// The sum over the ranks, and the residual.
Stream AddResidual(GraphBuilder& builder, Collective collective, Rows rows, const Change& change) {
  const ValueIndex x = builder.Input(Dtype::kBf16, Rows::kAll, kColumns);
  const ValueIndex residual = builder.Input(Dtype::kBf16, rows, kColumns);
  const ValueIndex gamma = builder.Input(Dtype::kBf16, Rows::kOne, kColumns, true);
  const ValueIndex sum = builder.Collect(collective, x, Reduction::kSum);
  const ValueIndex kept = change.has_residual ? residual : Nothing(builder, residual);
  return {builder.Compute(Op::kAdd, {Of(sum), Of(kept)}), gamma};
}

ProgramGraph AddResidualNorm(const Change& change) {
  GraphBuilder builder;
  const Stream stream = AddResidual(builder, Collective::kAllReduce, Rows::kAll, change);
  const ValueIndex y =
      builder.Compute(Op::kRmsNorm, {Of(stream.value), Of(stream.gamma)}, {change.eps});
  return builder.Finish({{y, -1}, {stream.value, -1}});
}

ProgramGraph NormQuantize(const Change& change) {
  GraphBuilder builder;
  const Stream stream = AddResidual(builder, Collective::kAllReduce, Rows::kAll, change);
  const ValueIndex y =
      builder.Compute(Op::kRmsNorm, {Of(stream.value), Of(stream.gamma)}, {change.eps});
  const ValueIndex scale = builder.Compute(Op::kQuantizeScale, {Of(y)}, {}, Dtype::kF8E4M3);
  const ValueIndex q = builder.Compute(Op::kQuantize, {Of(y), Of(scale)}, {}, Dtype::kF8E4M3);
  return builder.Finish({{q, -1}, {stream.value, -1}});
}

ProgramGraph SequenceNorm(const Change& change) {
  GraphBuilder builder;
  const Stream stream = AddResidual(builder, Collective::kReduceScatter, Rows::kShare, change);
  const ValueIndex y =
      builder.Compute(Op::kRmsNorm, {Of(stream.value), Of(stream.gamma)}, {change.eps});
  const ValueIndex all = builder.Collect(Collective::kAllGather, y);
  return builder.Finish({{all, -1}});
}

ProgramGraph GradientBucket(const Change& change) {
  GraphBuilder builder;
  std::vector<ValueIndex> gradients;
  for (int i = 0; i < 3; ++i) gradients.push_back(builder.Input(Dtype::kF32, Rows::kOne, kColumns));
  std::vector<ProgramOutput> outputs;
  for (const ValueIndex each : gradients) {
    ValueIndex y = builder.Collect(Collective::kAllReduce, each, Reduction::kSum);
    for (int i = 0; i < change.scalings; ++i) {
      y = builder.Compute(Op::kMul, {Of(y), Literally(0.3)});
    }
    outputs.push_back({y, -1});
  }
  return builder.Finish(outputs);
}

ProgramGraph MoeDispatch(const Change& change) {
  GraphBuilder builder;
  const ValueIndex x = builder.Input(Dtype::kBf16, Rows::kAll, kColumns);
  const ValueIndex scale = builder.Input(Dtype::kBf16, Rows::kOne, kColumns);
  ValueIndex y = builder.Compute(Op::kAdd, {Of(x), Of(Nothing(builder, scale))});
  for (int i = 0; i < change.scalings; ++i) y = builder.Compute(Op::kMul, {Of(y), Of(scale)});
  return builder.Finish({{builder.Collect(Collective::kAllToAll, y), -1}});
}

std::vector<Example> Examples() {
  return {{"tp_linear", TpLinear},
          {"add_residual_norm", AddResidualNorm},
          {"norm_quantize_fp8", NormQuantize},
          {"sequence_norm", SequenceNorm},
          {"gradient_bucket", GradientBucket},
          {"moe_dispatch", MoeDispatch}};
}

// The inputs of all ranks; `source` may change where one of them comes from.
Inputs MakeInputs(const ProgramGraph& graph,
                  const std::function<Source(int rank, size_t input)>& source) {
  Inputs inputs(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      inputs[static_cast<size_t>(rank)].push_back(InputFrom(graph, i, source(rank, i)));
    }
  }
  return inputs;
}

Outputs Evaluated(const ProgramGraph& graph, const Inputs& inputs) {
  auto result = EvaluateProgram(graph, kRowCount, kRanks, inputs);
  EXPECT_TRUE(result.has_value()) << result.error().ToText();
  return std::move(*result);
}

Source Itself(int rank, size_t) { return {.rank = rank}; }

// Whether the first output of the changed program is wrong in 1 % of its elements, on some rank.
bool IsFound(const Outputs& expected, const Outputs& changed) {
  for (size_t rank = 0; rank < expected.size(); ++rank) {
    const EvaluatedValue& right = expected[rank][0];
    if (CountWrong(right, Encode(changed[rank][0])) * 100 >= right.elements()) return true;
  }
  return false;
}

bool IsGraphChangeFound(const Example& example, const Change& change) {
  const ProgramGraph graph = example.graph({});
  const Inputs inputs = MakeInputs(graph, Itself);
  return IsFound(Evaluated(graph, inputs), Evaluated(example.graph(change), inputs));
}

bool IsInputChangeFound(const Example& example,
                        const std::function<Source(int rank, size_t input)>& source) {
  const ProgramGraph graph = example.graph({});
  return IsFound(Evaluated(graph, MakeInputs(graph, Itself)),
                 Evaluated(graph, MakeInputs(graph, source)));
}

TEST(ProgramMutantsTest, EachProgramIsRightAsItIs) {
  for (const Example& example : Examples()) {
    const ProgramGraph graph = example.graph({});
    const Outputs outputs = Evaluated(graph, MakeInputs(graph, Itself));
    for (const auto& of_rank : outputs) {
      for (const EvaluatedValue& each : of_rank) {
        EXPECT_EQ(CountWrong(each, Encode(each)), 0u) << example.name;
      }
    }
  }
}

TEST(ProgramMutantsTest, BoundsAreBelowEightUlp) {
  for (const Example& example : Examples()) {
    const ProgramGraph graph = example.graph({});
    for (const auto& of_rank : Evaluated(graph, MakeInputs(graph, Itself))) {
      for (const EvaluatedValue& output : of_rank) {
        const FloatFormat& format = FormatOf(output.type.dtype);
        double largest = 0;
        for (const Bounded& each : output.floats) {
          largest = std::max(largest, each.bound / Ulp(format, std::fabs(each.value)));
        }
        EXPECT_LT(largest, output.type.dtype == Dtype::kF32 ? 4 : 3) << example.name;
      }
    }
  }
}

TEST(ProgramMutantsTest, AMissingResidualOrBiasIsFound) {
  const auto examples = Examples();
  for (const size_t i : {0u, 1u, 2u, 3u}) {
    EXPECT_TRUE(IsGraphChangeFound(examples[i], {.has_residual = false})) << examples[i].name;
  }
}

TEST(ProgramMutantsTest, AMissingEpsIsFound) {
  const auto examples = Examples();
  // The scale of a quantized row takes eps out of its numbers.
  for (const size_t i : {1u, 3u}) {
    EXPECT_TRUE(IsGraphChangeFound(examples[i], {.eps = 1e-30})) << examples[i].name;
  }
}

TEST(ProgramMutantsTest, AnotherEpsIsFoundBySmallRowsAlone) {
  const auto examples = Examples();
  for (const size_t i : {1u, 3u}) {
    EXPECT_TRUE(IsGraphChangeFound(examples[i], {.eps = 1e-5})) << examples[i].name;
  }
}

TEST(ProgramMutantsTest, ScalingTwiceOrNotAtAllIsFound) {
  const auto examples = Examples();
  for (const size_t i : {4u, 5u}) {
    EXPECT_TRUE(IsGraphChangeFound(examples[i], {.scalings = 2})) << examples[i].name;
    EXPECT_TRUE(IsGraphChangeFound(examples[i], {.scalings = 0})) << examples[i].name;
  }
}

TEST(ProgramMutantsTest, WeightsThatAreShiftedByAColumnAreFound) {
  const auto shifted = [](size_t input_of_weights) {
    return [=](int rank, size_t input) {
      return Source{.rank = rank, .column_shift = input == input_of_weights ? 1u : 0u};
    };
  };
  const auto examples = Examples();
  EXPECT_TRUE(IsInputChangeFound(examples[0], shifted(1)));
  EXPECT_TRUE(IsInputChangeFound(examples[1], shifted(2)));
  EXPECT_TRUE(IsInputChangeFound(examples[2], shifted(2)));
  EXPECT_TRUE(IsInputChangeFound(examples[3], shifted(2)));
  EXPECT_TRUE(IsInputChangeFound(examples[5], shifted(1)));
}

TEST(ProgramMutantsTest, AnotherRowOfAnyInputIsFound) {
  for (const Example& example : Examples()) {
    const size_t inputs = example.graph({}).inputs().size();
    for (size_t changed = 0; changed < inputs; ++changed) {
      if (example.graph({}).inputs()[changed].type.rows == Rows::kOne) continue;
      EXPECT_TRUE(IsInputChangeFound(example,
                                     [&](int rank, size_t input) {
                                       return Source{.rank = rank,
                                                     .row_shift = input == changed ? 1u : 0u};
                                     }))
          << example.name << changed;
    }
  }
}

TEST(ProgramMutantsTest, AnotherRanksResidualIsFound) {
  const auto examples = Examples();
  for (const size_t i : {1u, 2u, 3u}) {
    EXPECT_TRUE(IsInputChangeFound(examples[i], [](int rank, size_t input) {
      return Source{.rank = input == 1 ? rank ^ 1 : rank};
    })) << examples[i].name;
  }
}

TEST(ProgramMutantsTest, AMissingRankOfASumIsFound) {
  for (const Example& example : Examples()) {
    if (example.name == "moe_dispatch") continue;
    EXPECT_TRUE(IsInputChangeFound(example, [](int rank, size_t input) {
      return Source{.rank = input == 0 && rank == 3 ? 2 : rank};
    })) << example.name;
  }
}

}  // namespace
}  // namespace cotune
