// The kernels of parts on the CPU: their results are those of the reference evaluator, and, where
// operations are exact, have the bits of the naive interpreter that the host backend is held to.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/problem/evaluated_value.h"
#include "core/problem/program_evaluator.h"
#include "plugins/cuda/testing/computed_nans.h"
#include "plugins/cuda/testing/part_cases.h"
#include "plugins/cuda/testing/part_graph.h"
#include "plugins/cuda/testing/run_part.h"
#include "plugins/sdk/testing/part_data.h"

namespace cotune::cuda::cpu {
namespace {

using sdk::PartArray;
using sdk::Program;

const std::vector<PartVariant>& Variants() {
  static const auto& variants = *new std::vector<PartVariant>(PartVariants(ExamplePaths()));
  return variants;
}

// One element of a value, as a value of its own.
EvaluatedValue ElementOf(const EvaluatedValue& value, size_t i) {
  EvaluatedValue one;
  one.type = {value.type.dtype, Rows::kOne, 1};
  one.rows = 1;
  if (!value.floats.empty()) one.floats = {value.floats[i]};
  if (!value.integers.empty()) one.integers = {value.integers[i]};
  if (!value.integer_bounds.empty()) one.integer_bounds = {value.integer_bounds[i]};
  return one;
}

// The first element that is wrong; "" where there is none.
std::string FirstWrong(const EvaluatedValue& expected, const PartArray& seen) {
  if (CountWrong(expected, seen.bytes) == 0) return "";
  const size_t size = sdk::PartBytes(seen.dtype);
  for (size_t i = 0; i < expected.elements(); ++i) {
    const EvaluatedValue one = ElementOf(expected, i);
    if (CountWrong(one, std::span(seen.bytes).subspan(i * size, size)) == 0) continue;
    const double element = sdk::PartElement(seen, i);
    if (one.floats.empty()) {
      return fmt::format("element {} is {}, not {}", i, element, one.integers[0]);
    }
    return fmt::format("element {} is {}, not {} +- {}", i, element, one.floats[0].value,
                       one.floats[0].bound);
  }
  return "it has another size";
}

// Elements that the evaluator calls wrong; "" where there are none.
std::string WrongByEvaluator(const Program& program, const std::vector<PartArray>& inputs,
                             const std::vector<PartArray>& seen) {
  // A rank's share is what it is in a group of one rank whose R is the share.
  const ProgramGraph graph = GraphOf(program);
  std::vector<std::vector<std::byte>> bytes;
  uint64_t rows = 0;
  const std::vector<int> used = InputsOf(program);
  for (const int i : used) bytes.push_back(inputs[static_cast<size_t>(i)].bytes);
  for (const sdk::Value& value : program.values) {
    if (value.rows_kind != COTUNE_ROWS_ONE) rows = std::max(rows, value.rows);
  }
  const auto expected = EvaluateProgram(graph, rows, 1, {bytes});
  if (!expected) return expected.error().ToText();
  const std::vector<size_t> outputs = GraphOutputsOf(program);
  for (size_t o = 0; o < seen.size(); ++o) {
    const std::string wrong = FirstWrong((*expected)[0][outputs[o]], seen[o]);
    if (!wrong.empty()) return fmt::format("output {}: {}", o, wrong);
  }
  return "";
}

// Whether the evaluator takes the program.
bool IsChecked(const PartCase& part) {
  const auto& values = part.program.values;
  for (size_t n = 0; n < part.program.nodes.size(); ++n) {
    const sdk::ProgramNode& node = part.program.nodes[n];
    for (int o = 0; o < node.operand_count; ++o) {
      if (node.operands[o] < 0 || node.kind == COTUNE_NODE_CAST) continue;
      const sdk::ValueDtype dtype = values[static_cast<size_t>(node.operands[o])].dtype;
      const bool is_stored_only = dtype == sdk::ValueDtype::kI8 ||
                                  dtype == sdk::ValueDtype::kF8E4M3 ||
                                  dtype == sdk::ValueDtype::kF8E5M2;
      if (is_stored_only) return false;
    }
  }
  for (const int output : part.program.outputs) {
    if (output < part.program.input_count) return false;
  }
  return part.program.outputs.size() <= kProgramOutputsMax;
}

std::string RunOne(size_t v, uint64_t rows, uint64_t share_rows, const PartRun& run) {
  const PartVariant& variant = Variants()[v];
  const Program program = WithRows(variant.part.program, rows, share_rows);
  std::mt19937_64 random(v * 31 + rows);
  const auto inputs = sdk::RandomInputs(program, random, run.seed % 2 == 0);
  const PartResult result = RunPart(PartKernelOf(v), variant.shape, program, inputs, run);
  if (!result.failure.empty()) return result.failure;
  if (!variant.part.has_functions) {
    const std::string difference = sdk::Difference(result.outputs, sdk::NaivePart(program, inputs));
    if (!difference.empty()) return difference;
  }
  return OtherNan(program, result.outputs);
}

std::string RunChecked(size_t v, uint64_t rows, const PartRun& run) {
  const PartVariant& variant = Variants()[v];
  const Program program = WithRows(variant.part.program, rows, rows);
  std::mt19937_64 random(v * 37 + rows);
  const auto inputs = sdk::RandomInputs(program, random, run.seed % 2 == 0);
  const PartResult result = RunPart(PartKernelOf(v), variant.shape, program, inputs, run);
  if (!result.failure.empty()) return result.failure;
  return WrongByEvaluator(program, inputs, result.outputs);
}

TEST(PartsTest, ExactPartsHaveTheBitsOfTheNaiveInterpreter) {
  for (size_t v = 0; v < Variants().size(); ++v) {
    for (const uint64_t rows : {0u, 1u, 5u}) {
      for (const size_t shift : {0u, 1u}) {
        const PartRun run = {.shift = shift, .seed = v + rows};
        EXPECT_EQ(RunOne(v, rows, rows / 2, run), "")
            << Variants()[v].part.name << " rows " << rows << " shift " << shift;
      }
    }
  }
}

TEST(PartsTest, PartsAreRightByTheEvaluator) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the other tests run the same kernels, and values do not depend on this build";
#endif
  size_t checked = 0;
  for (size_t v = 0; v < Variants().size(); ++v) {
    if (!IsChecked(Variants()[v].part)) continue;
    ++checked;
    for (const uint64_t rows : {1u, 4u}) {
      EXPECT_EQ(RunChecked(v, rows, {.shift = rows % 4, .seed = v + rows}), "")
          << Variants()[v].part.name << " rows " << rows;
    }
  }
  EXPECT_GT(checked, 60u);
}

size_t VariantOf(const std::string& name) {
  for (size_t v = 0; v < Variants().size(); ++v) {
    if (Variants()[v].part.name == name) return v;
  }
  ADD_FAILURE() << "there is no part " << name;
  return 0;
}

// A number that lies just above the middle of two bf16, and whose nearest f32 is the middle itself:
// rounded twice it would become the lower one.
TEST(PartsTest, WideNumbersAreRoundedOnce) {
  const std::pair<sdk::ValueDtype, double> numbers[] = {{sdk::ValueDtype::kF64, 16842753.0},
                                                        {sdk::ValueDtype::kI32, 16842753.0},
                                                        {sdk::ValueDtype::kI64, 16842753.0}};
  for (const auto& [dtype, number] : numbers) {
    const size_t v = VariantOf(fmt::format("all_casts_{}", static_cast<int>(dtype)));
    const Program program = WithRows(Variants()[v].part.program, 1, 1);
    std::mt19937_64 random(1);
    auto inputs = sdk::RandomInputs(program, random, false);
    sdk::SetPartElement(inputs[0], 3, number);
    sdk::SetPartElement(inputs[0], 4, -number);
    const auto result = RunPart(PartKernelOf(v), Variants()[v].shape, program, inputs, {});
    for (const PartArray& output : result.outputs) {
      if (output.dtype != sdk::ValueDtype::kBf16) continue;
      EXPECT_EQ(sdk::PartElement(output, 3), 16777216.0 + 131072);
      EXPECT_EQ(sdk::PartElement(output, 4), -16777216.0 - 131072);
    }
  }
}

// Each is divided by each.
template <typename T>
void ExpectQuotients(const std::string& part, const std::vector<T>& numbers) {
  const size_t v = VariantOf(part);
  const size_t columns = 32;
  ASSERT_EQ(numbers.size(), columns);
  const Program program = WithRows(Variants()[v].part.program, columns, columns);
  std::mt19937_64 random(1);
  auto inputs = sdk::RandomInputs(program, random, false);
  for (size_t i = 0; i < columns * columns; ++i) {
    sdk::SetPartElement(inputs[0], i, static_cast<double>(numbers[i / columns]));
    sdk::SetPartElement(inputs[1], i, static_cast<double>(numbers[i % columns]));
  }
  const auto result = RunPart(PartKernelOf(v), Variants()[v].shape, program, inputs, {});
  ASSERT_EQ(result.failure, "");
  for (size_t i = 0; i < columns * columns; ++i) {
    const T x = numbers[i / columns];
    const T y = numbers[i % columns];
    const T expected = x / y;
    const auto seen = static_cast<T>(sdk::PartElement(result.outputs[0], i));
    const bool is_equal = std::isnan(expected)
                              ? std::isnan(seen)
                              : seen == expected && std::signbit(seen) == std::signbit(expected);
    EXPECT_TRUE(is_equal) << x << " / " << y << " is " << seen;
  }
}

template <typename T>
std::vector<T> NumbersOfAllKinds() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> numbers = {0,
                            1,
                            3,
                            448,
                            T(1) / (1 << 30),
                            T(1e-30),
                            T(1e30),
                            Limits::denorm_min(),
                            3 * Limits::denorm_min(),
                            Limits::min() / 2,
                            Limits::min(),
                            Limits::epsilon(),
                            Limits::max(),
                            Limits::max() / 3,
                            Limits::infinity(),
                            Limits::quiet_NaN()};
  const size_t positive = numbers.size();
  for (size_t i = 0; i < positive; ++i) numbers.push_back(-numbers[i]);
  return numbers;
}

TEST(PartsTest, QuotientsOfAllKindsOfNumbersAreThoseOfTheLanguage) {
  ExpectQuotients("quotients_f32", NumbersOfAllKinds<float>());
  ExpectQuotients("quotients_f64", NumbersOfAllKinds<double>());
}

// Parts of one name differ in the number of threads of a row.
TEST(PartsTest, EveryNumberOfThreadsGivesTheSameBits) {
  std::map<std::string, std::vector<PartArray>> first;
  size_t compared = 0;
  for (size_t v = 0; v < Variants().size(); ++v) {
    const PartVariant& variant = Variants()[v];
    const Program program = WithRows(variant.part.program, 3, 3);
    std::mt19937_64 random(5);
    const auto inputs = sdk::RandomInputs(program, random, false);
    const auto result =
        RunPart(PartKernelOf(v), variant.shape, program, inputs, {.blocks_max = 2, .seed = v});
    const auto [found, is_new] = first.try_emplace(variant.part.name, result.outputs);
    if (is_new) continue;
    ++compared;
    EXPECT_EQ(result.failure, "");
    EXPECT_EQ(sdk::Difference(result.outputs, found->second), "")
        << variant.part.name << " with " << variant.shape.row_threads << " threads a row";
  }
  EXPECT_GE(compared, 12u);
}

// Parts with several stages in a launch.
TEST(PartsTest, EveryGridGivesTheSameBits) {
  size_t compared = 0;
  for (size_t v = 0; v < Variants().size(); ++v) {
    const PartVariant& variant = Variants()[v];
    if (!SharesOutBlocks(*StagesOf(variant.part.program))) continue;
    const Program program = WithRows(variant.part.program, 7, 3);
    std::mt19937_64 random(v);
    const auto inputs = sdk::RandomInputs(program, random, false);
    std::vector<PartArray> first;
    for (const unsigned int blocks_max : {1000u, 1u, 2u, 3u, 5u, 11u}) {
      const PartRun run = {.blocks_max = blocks_max, .seed = v + blocks_max};
      const auto result = RunPart(PartKernelOf(v), variant.shape, program, inputs, run);
      EXPECT_EQ(result.failure, "") << variant.part.name;
      if (first.empty()) first = result.outputs;
      EXPECT_EQ(sdk::Difference(result.outputs, first), "")
          << variant.part.name << " with at most " << blocks_max << " blocks";
      ++compared;
    }
    if (!variant.part.has_functions) {
      EXPECT_EQ(sdk::Difference(first, sdk::NaivePart(program, inputs)), "") << variant.part.name;
    }
  }
  EXPECT_GT(compared, 200u);
}

TEST(PartsTest, CopiesKeepAllBits) {
  for (const char* const name : {"copies", "copies_and_sums"}) {
    const size_t v = VariantOf(name);
    for (const size_t shift : {0u, 1u}) {
      const Program program = WithRows(Variants()[v].part.program, 9, 9);
      std::mt19937_64 random(3);
      auto inputs = sdk::RandomInputs(program, random, false);
      for (PartArray& input : inputs) {
        for (std::byte& byte : input.bytes) byte = static_cast<std::byte>(random());
        // NaN of every float, with bits beside the first one.
        for (size_t b = 0; b < input.bytes.size() / 2; ++b) input.bytes[b] |= std::byte{0x7D};
      }
      const PartRun run = {.shift = shift, .blocks_max = 5};
      const auto result = RunPart(PartKernelOf(v), Variants()[v].shape, program, inputs, run);
      ASSERT_EQ(result.failure, "");
      for (size_t i = 0; i < inputs.size(); ++i) {
        EXPECT_EQ(result.outputs[i].bytes, inputs[i].bytes)
            << name << " input " << i << " shift " << shift;
      }
    }
  }
}

}  // namespace
}  // namespace cotune::cuda::cpu
