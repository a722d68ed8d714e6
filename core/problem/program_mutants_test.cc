// The bounds of the example programs: wide enough for nothing but what is right. Each program is
// changed in a way that a wrong kernel could be wrong, and the results of the changed one must be
// found wrong.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "core/problem/bounded.h"
#include "core/problem/program_data.h"
#include "core/problem/program_evaluator.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using Inputs = std::vector<std::vector<std::vector<std::byte>>>;
using Outputs = std::vector<std::vector<EvaluatedValue>>;

constexpr int kRanks = 4;
constexpr uint64_t kRowCount = 64;
constexpr uint32_t kColumns = 264;

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

// A program with fewer columns than a model has, so that its rows are quickly computed.
struct Example {
  std::string name;
  std::string text;

  ProgramGraph graph() const { return Parsed(text); }
  // The same program with each match of a pattern replaced, which must occur. The inputs stay.
  ProgramGraph Changed(const std::string& pattern, const std::string& replacement) const {
    const std::string changed = std::regex_replace(text, std::regex(pattern), replacement);
    EXPECT_NE(changed, text) << name << " has no " << pattern;
    return Parsed(changed);
  }

 private:
  static ProgramGraph Parsed(const std::string& text) {
    const Result<ProgramGraph> graph = ProgramGraph::Parse(text);
    EXPECT_TRUE(graph.has_value()) << graph.error().ToText() << "\n" << text;
    return *graph;
  }
};

Example FromFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string columns = ", " + std::to_string(kColumns) + "]";
  text = std::regex_replace(text, std::regex(R"(, \d{3,}\])"), columns);
  return {path.stem().string(), std::move(text)};
}

// All programs that users may start from, as they are but for their columns.
std::vector<Example> Examples() {
  std::vector<Example> examples;
  for (const auto& entry : std::filesystem::directory_iterator("examples/programs")) {
    if (entry.path().extension() == ".cotune") examples.push_back(FromFile(entry.path()));
  }
  EXPECT_GE(examples.size(), 6u);
  return examples;
}

Example Named(const std::string& name) { return FromFile("examples/programs/" + name + ".cotune"); }

// An example whose residual is another one on every rank.
Example WithOwnResidual(Example example) {
  example.text = std::regex_replace(example.text, std::regex("(%residual = .*) replicated"), "$1");
  return example;
}

// The sequence with a residual, of which each rank has its share.
Example SequenceResidualNorm() {
  Example example = Named("sequence_norm");
  example.name = "sequence_residual_norm";
  example.text = std::regex_replace(example.text, std::regex("%share = (.*)\n"),
                                    "%residual = input bf16 [R/n, " + std::to_string(kColumns) +
                                        "]\n%sum = $1\n%share = add %sum, %residual\n");
  return example;
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

bool IsGraphChangeFound(const Example& example, const std::string& pattern,
                        const std::string& replacement) {
  const ProgramGraph graph = example.graph();
  const Inputs inputs = MakeInputs(graph, Itself);
  return IsFound(Evaluated(graph, inputs),
                 Evaluated(example.Changed(pattern, replacement), inputs));
}

bool IsInputChangeFound(const Example& example,
                        const std::function<Source(int rank, size_t input)>& source) {
  const ProgramGraph graph = example.graph();
  return IsFound(Evaluated(graph, MakeInputs(graph, Itself)),
                 Evaluated(graph, MakeInputs(graph, source)));
}

TEST(ProgramMutantsTest, EachProgramIsRightAsItIs) {
  for (const Example& example : Examples()) {
    const ProgramGraph graph = example.graph();
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
    const ProgramGraph graph = example.graph();
    for (const auto& of_rank : Evaluated(graph, MakeInputs(graph, Itself))) {
      for (const EvaluatedValue& output : of_rank) {
        // A scale of f32 that is computed from values of 16 bits is as exact as these.
        const Dtype dtype = output.type.columns == 1 ? Dtype::kBf16 : output.type.dtype;
        const FloatFormat& format = FormatOf(dtype);
        double largest = 0;
        for (const Bounded& each : output.floats) {
          largest = std::max(largest, each.bound / Ulp(format, std::fabs(each.value)));
        }
        EXPECT_LT(largest, dtype == Dtype::kF32 ? 4 : 3) << example.name;
      }
    }
  }
}

TEST(ProgramMutantsTest, AMissingResidualOrBiasIsFound) {
  for (const Example& example : {Named("add_residual_norm"), Named("norm_quantize_fp8"),
                                 Named("tp_linear"), SequenceResidualNorm()}) {
    // It stays in use.
    EXPECT_TRUE(
        IsGraphChangeFound(example, "(%\\w+ *= add %sum), (%\\w+)", "%none = mul $2, 0\n$1, %none"))
        << example.name;
  }
}

TEST(ProgramMutantsTest, AMissingReluIsFound) {
  EXPECT_TRUE(IsGraphChangeFound(Named("tp_linear"), "relu %z", "mul %z, 1"));
}

TEST(ProgramMutantsTest, AnotherEpsIsFoundBySmallRowsAlone) {
  // The scale of a quantized row takes eps out of its numbers.
  for (const Example& example : {Named("add_residual_norm"), Named("sequence_norm")}) {
    EXPECT_TRUE(IsGraphChangeFound(example, "eps=1e-6", "eps=1e-30")) << example.name;
    EXPECT_TRUE(IsGraphChangeFound(example, "eps=1e-6", "eps=1e-5")) << example.name;
  }
}

TEST(ProgramMutantsTest, ScalingTwiceOrNotAtAllIsFound) {
  const Example bucket = Named("gradient_bucket");
  const std::string scaled = "(%\\w+) = mul (%s\\d+), (.*)";
  EXPECT_TRUE(IsGraphChangeFound(bucket, scaled, "$1once = mul $2, $3\n$1 = mul $1once, $3"));
  EXPECT_TRUE(IsGraphChangeFound(bucket, scaled, "$1 = mul $2, 1"));
  const Example dispatch = Named("moe_dispatch");
  const std::string weighted = "%scaled  = mul %x, %weight";
  EXPECT_TRUE(IsGraphChangeFound(dispatch, weighted,
                                 "%once = mul %x, %weight\n%scaled = mul %once, %weight"));
  EXPECT_TRUE(IsGraphChangeFound(
      dispatch, weighted, "%none = mul %weight, 0\n%one = add %none, 1\n%scaled = mul %x, %one"));
}

// These programs have inputs of one row that belong to columns.
TEST(ProgramMutantsTest, WeightsThatAreShiftedByAColumnAreFound) {
  int shifted = 0;
  for (const Example& example : Examples()) {
    const ProgramGraph graph = example.graph();
    if (!graph.has_rows()) continue;
    for (size_t weights = 0; weights < graph.inputs().size(); ++weights) {
      if (graph.inputs()[weights].type.rows != Rows::kOne) continue;
      ++shifted;
      EXPECT_TRUE(IsInputChangeFound(example, [&](int rank, size_t input) {
        return Source{.rank = rank, .column_shift = input == weights ? 1u : 0u};
      })) << example.name;
    }
  }
  EXPECT_GE(shifted, 4);
}

TEST(ProgramMutantsTest, AnotherRowOfAnyInputIsFound) {
  std::vector<Example> examples = Examples();
  examples.push_back(SequenceResidualNorm());
  for (const Example& example : examples) {
    const ProgramGraph graph = example.graph();
    for (size_t changed = 0; changed < graph.inputs().size(); ++changed) {
      if (graph.inputs()[changed].type.rows == Rows::kOne) continue;
      EXPECT_TRUE(IsInputChangeFound(example,
                                     [&](int rank, size_t input) {
                                       return Source{.rank = rank,
                                                     .row_shift = input == changed ? 1u : 0u};
                                     }))
          << example.name << changed;
    }
  }
}

// The program does not promise that this input is the same on all ranks.
TEST(ProgramMutantsTest, AnotherRanksResidualIsFound) {
  for (const Example& example :
       {WithOwnResidual(Named("add_residual_norm")), WithOwnResidual(Named("norm_quantize_fp8")),
        SequenceResidualNorm()}) {
    const ProgramGraph graph = example.graph();
    EXPECT_TRUE(IsInputChangeFound(example, [&](int rank, size_t input) {
      return Source{.rank = graph.inputs()[input].name == "residual" ? rank ^ 1 : rank};
    })) << example.name;
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
