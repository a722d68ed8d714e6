// The row of a part has the same bits in a batch of any size, at any place in it, and whatever
// number of threads the row has: so the result of a token does not depend on the tokens beside it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "plugins/cuda/testing/part_cases.h"
#include "plugins/cuda/testing/run_part.h"
#include "plugins/sdk/testing/part_data.h"

namespace cotune::cuda::cpu {
namespace {

using sdk::PartArray;
using sdk::Program;

#if defined(__SANITIZE_ADDRESS__)
constexpr uint64_t kRowsMax = 64;
#else
constexpr uint64_t kRowsMax = 1024;
#endif
constexpr uint64_t kBatches[] = {1, 2, 3, 7, 64, 257, 1024};

const std::vector<PartVariant>& Variants() {
  static const auto& variants = *new std::vector<PartVariant>(PartVariants(ExamplePaths()));
  return variants;
}

// ---- Rows of arrays ----

bool HasManyRows(const Program& program, int value) {
  return program.values[static_cast<size_t>(value)].rows_kind == COTUNE_ROWS_ALL;
}

// The rows [first, first + rows) of an array of `value`; all of it where it has one row for all.
PartArray RowsOf(const Program& program, int value, const PartArray& array, uint64_t first,
                 uint64_t rows) {
  if (!HasManyRows(program, value)) return array;
  const uint64_t row_bytes =
      program.values[static_cast<size_t>(value)].columns * sdk::PartBytes(array.dtype);
  const auto begin = array.bytes.begin() + static_cast<ptrdiff_t>(first * row_bytes);
  return {array.dtype, {begin, begin + static_cast<ptrdiff_t>(rows * row_bytes)}};
}

std::vector<PartArray> InputRows(const Program& program, const std::vector<PartArray>& inputs,
                                 uint64_t first, uint64_t rows) {
  std::vector<PartArray> part;
  for (int i = 0; i < program.input_count; ++i) {
    part.push_back(RowsOf(program, i, inputs[static_cast<size_t>(i)], first, rows));
  }
  return part;
}

std::vector<PartArray> OutputRows(const Program& program, const std::vector<PartArray>& outputs,
                                  uint64_t first, uint64_t rows) {
  std::vector<PartArray> part;
  for (size_t o = 0; o < outputs.size(); ++o) {
    part.push_back(RowsOf(program, program.outputs[o], outputs[o], first, rows));
  }
  return part;
}

// ---- Runs ----

// Numbers of any size.
std::vector<PartArray> InputsOf(const Program& part, uint64_t rows) {
  std::mt19937_64 random(rows);
  return sdk::RandomInputs(WithRows(part, rows, 0), random, /*with_special=*/false);
}

// Numbers from -2 to 2, of which many count in a softmax.
std::vector<PartArray> InputsLikeThoseOfModels(const Program& part, uint64_t rows) {
  std::mt19937_64 random(rows);
  std::uniform_real_distribution<double> uniform(-2, 2);
  std::vector<PartArray> inputs = InputsOf(part, rows);
  for (PartArray& input : inputs) {
    const size_t elements = input.bytes.size() / sdk::PartBytes(input.dtype);
    for (size_t i = 0; i < elements; ++i) sdk::SetPartElement(input, i, uniform(random));
  }
  return inputs;
}

// What a call with these rows of the inputs gives.
std::vector<PartArray> RunRows(size_t v, const std::vector<PartArray>& inputs, uint64_t first,
                               uint64_t rows) {
  const PartVariant& variant = Variants()[v];
  const Program program = WithRows(variant.part.program, rows, 0);
  const PartRun run = {.blocks_max = static_cast<unsigned int>(1 + (v + rows) % 3),
                       .seed = v + rows + first};
  PartResult result = RunPart(PartKernelOf(v), variant.shape, program,
                              InputRows(program, inputs, first, rows), run);
  EXPECT_EQ(result.failure, "") << variant.part.name;
  return std::move(result.outputs);
}

std::string NameOf(const PartVariant& variant) {
  return fmt::format("{} with {} threads a row", variant.part.name, variant.shape.row_threads);
}

bool HasShares(const Program& program) {
  return std::any_of(program.values.begin(), program.values.end(),
                     [](const sdk::Value& value) { return value.rows_kind == COTUNE_ROWS_SHARE; });
}

// ---- Parts of every kind, in a small batch ----

TEST(PartRowsTest, ARowOfABatchHasTheBitsOfTheRowAlone) {
  constexpr uint64_t kRows = 7;
  size_t parts = 0;
  for (size_t v = 0; v < Variants().size(); ++v) {
    const Program& program = Variants()[v].part.program;
    // How many rows a share has, its part does not say.
    if (HasShares(program)) continue;
    ++parts;
    const std::vector<PartArray> inputs = InputsOf(program, kRows);
    const std::vector<PartArray> batch = RunRows(v, inputs, 0, kRows);
    for (uint64_t row = 0; row < kRows; ++row) {
      EXPECT_EQ(sdk::Difference(RunRows(v, inputs, row, 1), OutputRows(program, batch, row, 1)), "")
          << NameOf(Variants()[v]) << ", row " << row;
    }
  }
  EXPECT_GT(parts, 150u);
}

// ---- Norms and softmax, with every number of threads ----

constexpr const char* kManyShapes[] = {"row_reductions_201", "row_reductions_3001",
                                       "residual_norm_520",  "residual_norm_4096",
                                       "layer_norm_520",     "softmax_520"};

std::map<std::string, std::vector<size_t>> VariantsByName() {
  std::map<std::string, std::vector<size_t>> by_name;
  for (size_t v = 0; v < Variants().size(); ++v) {
    const std::string& name = Variants()[v].part.name;
    if (std::find(std::begin(kManyShapes), std::end(kManyShapes), name) != std::end(kManyShapes))
      by_name[name].push_back(v);
  }
  return by_name;
}

class PartBatchesTest : public ::testing::TestWithParam<const char*> {};

// Each call is compared with those rows of one call of the first variant with all of them.
TEST_P(PartBatchesTest, EveryBatchAndEveryNumberOfThreadsGiveTheSameBits) {
  const std::vector<size_t> variants = VariantsByName()[GetParam()];
  std::set<int> row_threads;
  const Program& program = Variants()[variants[0]].part.program;
  const std::vector<PartArray> inputs = InputsLikeThoseOfModels(program, kRowsMax);
  const std::vector<PartArray> all = RunRows(variants[0], inputs, 0, kRowsMax);
  for (const size_t v : variants) {
    row_threads.insert(Variants()[v].shape.row_threads);
    for (const uint64_t rows : kBatches) {
      if (rows > kRowsMax) continue;
      // The first rows of all, and those in the middle.
      for (const uint64_t first : std::set{uint64_t{0}, (kRowsMax - rows) / 2}) {
        ASSERT_EQ(
            sdk::Difference(RunRows(v, inputs, first, rows), OutputRows(program, all, first, rows)),
            "")
            << NameOf(Variants()[v]) << ", rows " << first << " to " << first + rows;
      }
    }
  }
  EXPECT_GE(row_threads.size(), 4u);
}

INSTANTIATE_TEST_SUITE_P(Parts, PartBatchesTest, ::testing::ValuesIn(kManyShapes),
                         [](const auto& info) { return info.param; });

// Otherwise no order of additions could show: the tree gives other sums than a loop.
TEST(PartRowsTest, SumsOfRowsDependOnTheOrderOfAdditions) {
  for (const auto& [name, variants] : VariantsByName()) {
    if (!name.starts_with("row_reductions")) continue;
    const Program& program = Variants()[variants[0]].part.program;
    const std::vector<PartArray> inputs = InputsLikeThoseOfModels(program, kRowsMax);
    const std::vector<PartArray> outputs = RunRows(variants[0], inputs, 0, kRowsMax);
    const uint64_t columns = program.values[0].columns;
    uint64_t differing = 0;
    for (uint64_t row = 0; row < kRowsMax; ++row) {
      float sum = 0;
      for (uint64_t c = 0; c < columns; ++c) {
        sum += static_cast<float>(sdk::PartElement(inputs[0], row * columns + c));
      }
      differing += static_cast<double>(sum) != sdk::PartElement(outputs[0], row) ? 1 : 0;
    }
    EXPECT_GT(differing, kRowsMax / 2) << name;
  }
}

}  // namespace
}  // namespace cotune::cuda::cpu
