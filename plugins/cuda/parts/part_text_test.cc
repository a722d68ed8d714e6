// The generated text of one part as a whole, and what texts do and do not depend on.
#include "plugins/cuda/parts/part_text.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "plugins/cuda/parts/part_shape.h"
#include "plugins/cuda/parts/stage_runs.h"
#include "plugins/cuda/testing/part_cases.h"
#include "plugins/sdk/testing/part_builder.h"

namespace cotune::cuda {
namespace {

using sdk::PartBuilder;
using sdk::PartOperand;
using sdk::ValueDtype;

std::string TextOf(const sdk::Program& program) { return PartText(program, *StagesOf(program)); }

void ExpectGolden(const char* path, const std::string& text) {
  std::ifstream file(path);
  std::stringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(text, golden.str()) << "if the change is meant, this is the new " << path << ":\n"
                                << text;
}

TEST(PartTextTest, ANormHasTheTextOfTheGoldenFile) {
  ExpectGolden("plugins/cuda/parts/part_text.golden",
               TextOf(ResidualNorm(ValueDtype::kBf16, 8192, false)));
}

// Elements, a copy, and rows with a reduction.
TEST(PartTextTest, StagesOfOneLaunchHaveTheTextOfTheGoldenFile) {
  PartBuilder part(4);
  const int x = part.Input(ValueDtype::kF32, 64);
  const int y = part.Input(ValueDtype::kBf16, 16384, COTUNE_ROWS_ONE);
  const int z = part.Input(ValueDtype::kF32, 16384, COTUNE_ROWS_ONE);
  part.Output(part.Node(COTUNE_NODE_ROW_SUM, {x}));
  part.Output(part.Cast(y, ValueDtype::kBf16));
  part.Output(part.Node(COTUNE_NODE_MUL, {z, PartOperand::Literal(0.25)}));
  ExpectGolden("plugins/cuda/parts/part_text_stages.golden", TextOf(part.program));
}

TEST(PartTextTest, OutputsThatReadNothingInCommonAreStagesOfTheirOwn) {
  PartBuilder part(4);
  const int x = part.Input(ValueDtype::kF32, 64);
  const int y = part.Input(ValueDtype::kF32, 64);
  const int z = part.Input(ValueDtype::kF32, 64);
  const int scale = part.Input(ValueDtype::kF32, 1, COTUNE_ROWS_ONE);
  part.Output(part.Node(COTUNE_NODE_MUL, {x, scale}));
  part.Output(part.Node(COTUNE_NODE_MUL, {y, scale}));
  part.Output(part.Node(COTUNE_NODE_MUL, {z, scale}));
  part.Output(part.Node(COTUNE_NODE_NEG, {y}));
  const auto outputs = [&] {
    std::vector<std::vector<size_t>> made;
    const PartStages stages = *StagesOf(part.program);
    EXPECT_EQ(stages.launches, 1);
    for (const PartStage& stage : stages.stages) made.push_back(stage.outputs);
    return made;
  };
  using Outputs = std::vector<std::vector<size_t>>;
  EXPECT_EQ(outputs(), (Outputs{{0}, {1, 3}, {2}}));
  // A stage that overwrites an input reads it as the others do.
  part.program.output_into[3] = x;
  EXPECT_EQ(outputs(), (Outputs{{0, 1, 3}, {2}}));
}

// Copies and scaled tensors of several sizes, as the parts around a bucket have them.
TEST(PartTextTest, StagesThatDoTheSameHaveTheTextOfTheGoldenFile) {
  PartBuilder part(4);
  const int scale = part.Input(ValueDtype::kF32, 1, COTUNE_ROWS_ONE);
  std::vector<int> tensors;
  for (const uint64_t columns : {16384u, 16384u, 512u, 7u}) {
    tensors.push_back(part.Input(ValueDtype::kF32, columns, COTUNE_ROWS_ONE));
  }
  const int other = part.Input(ValueDtype::kBf16, 64, COTUNE_ROWS_ONE);
  for (const int tensor : tensors) part.Output(part.Node(COTUNE_NODE_MUL, {tensor, scale}));
  part.Output(part.Cast(other, ValueDtype::kBf16));
  ExpectGolden("plugins/cuda/parts/part_text_run.golden", TextOf(part.program));
}

// The stages of each run, for one launch.
std::vector<size_t> CountsOf(const sdk::Program& part) {
  std::vector<size_t> counts;
  for (const StageRun& run : RunsOf(part, *StagesOf(part), 0)) counts.push_back(run.count);
  return counts;
}

TEST(PartTextTest, TensorsWithTheSameOperationsAreOneRun) {
  using Counts = std::vector<size_t>;
  for (const bool copies : {false, true}) {
    const std::vector<uint64_t> columns = {16384, 5, 4096, 2048, 12289};
    const auto part = Tensors(ValueDtype::kBf16, columns, copies);
    EXPECT_EQ(CountsOf(part), Counts{5});
    const std::vector<StageRun> runs = RunsOf(part, *StagesOf(part), 0);
    EXPECT_EQ(runs.front().columns, columns);
    // Inputs come first, then outputs.
    EXPECT_EQ(runs.front().operands, (std::vector<OperandStep>{{0, 1}, {5, 1}}));
  }
}

TEST(PartTextTest, OperandsOfARunHaveOneDistance) {
  using Counts = std::vector<size_t>;
  PartBuilder part(1);
  std::vector<int> inputs;
  for (int i = 0; i < 6; ++i) {
    inputs.push_back(part.Input(ValueDtype::kF32, 64, COTUNE_ROWS_ONE));
  }
  // The second operands descend, and those of the third sum leave the row.
  const std::vector<std::pair<int, int>> pairs = {{0, 5}, {1, 4}, {3, 2}};
  for (const auto& [a, b] : pairs) {
    part.Output(part.Node(COTUNE_NODE_ADD,
                          {inputs[static_cast<size_t>(a)], inputs[static_cast<size_t>(b)]}));
  }
  // Values ascend in a stage, so that the third one reads the inputs 2 and 3.
  EXPECT_EQ(CountsOf(part.program), (Counts{2, 1}));
  const std::vector<StageRun> runs = RunsOf(part.program, *StagesOf(part.program), 0);
  EXPECT_EQ(runs.front().operands, (std::vector<OperandStep>{{0, 1}, {5, -1}, {6, 1}}));
}

TEST(PartTextTest, StagesThatDifferAreNotOneRun) {
  using Counts = std::vector<size_t>;
  const auto counts = [](ValueDtype second_dtype, uint32_t second_rows, double second_factor) {
    PartBuilder part(8);
    const int x = part.Input(ValueDtype::kF32, 64, COTUNE_ROWS_ONE);
    const int y = part.Input(second_dtype, 64, second_rows);
    part.Output(part.Node(COTUNE_NODE_MUL, {x, PartOperand::Literal(0.25)}));
    part.Output(part.Node(COTUNE_NODE_MUL, {y, PartOperand::Literal(second_factor)}));
    return CountsOf(part.program);
  };
  EXPECT_EQ(counts(ValueDtype::kF32, COTUNE_ROWS_ONE, 0.25), Counts{2});
  EXPECT_EQ(counts(ValueDtype::kF32, COTUNE_ROWS_ONE, 0.5), (Counts{1, 1}));
  EXPECT_EQ(counts(ValueDtype::kF16, COTUNE_ROWS_ONE, 0.25), (Counts{1, 1}));
  EXPECT_EQ(counts(ValueDtype::kF32, COTUNE_ROWS_ALL, 0.25), (Counts{1, 1}));
}

// A number that another stage stores is rounded to its dtype before this stage reads it.
TEST(PartTextTest, AStageThatReadsAnOutputOfAnotherIsAlone) {
  using Counts = std::vector<size_t>;
  PartBuilder part(1);
  const int number = part.Input(ValueDtype::kBf16, 1, COTUNE_ROWS_ONE);
  const int x = part.Input(ValueDtype::kBf16, 64, COTUNE_ROWS_ONE);
  const int y = part.Input(ValueDtype::kBf16, 64, COTUNE_ROWS_ONE);
  const int half = part.Node(COTUNE_NODE_MUL, {number, PartOperand::Literal(0.3)});
  const int other_half = part.Node(COTUNE_NODE_MUL, {number, PartOperand::Literal(0.3)});
  part.Output(part.Node(COTUNE_NODE_MUL, {x, half}));
  part.Output(part.Node(COTUNE_NODE_MUL, {y, other_half}));
  const size_t without = CountsOf(part.program).size();
  part.Output(other_half);
  EXPECT_EQ(without, 1u);
  EXPECT_EQ(CountsOf(part.program), (Counts{1, 1, 1}));
}

std::vector<unsigned int> EndsOf(const sdk::Program& part, uint64_t blocks_max) {
  const PartStages stages = *StagesOf(part);
  return StageEndsOf(part, stages, ShapeOf(part, stages), 0, blocks_max);
}

TEST(PartTextTest, StagesHaveTheBlocksThatTheyHaveWorkFor) {
  using Ends = std::vector<unsigned int>;
  // A block has 256 threads with 8 columns each.
  const auto part = Tensors(ValueDtype::kF32, {16384, 2048, 2049, 1}, false);
  EXPECT_EQ(EndsOf(part, 1000), (Ends{8, 9, 11, 12}));
  EXPECT_EQ(EndsOf(part, 12), (Ends{8, 9, 11, 12}));
  // One block each; the others go where the work is.
  EXPECT_EQ(EndsOf(part, 9), (Ends{5, 6, 8, 9}));
  EXPECT_EQ(EndsOf(part, 4), (Ends{1, 2, 3, 4}));
  // Fewer blocks than stages.
  EXPECT_EQ(EndsOf(part, 2), (Ends{2, 2, 2, 2}));
  EXPECT_EQ(EndsOf(part, 1), (Ends{1, 1, 1, 1}));
  const auto equal = Tensors(ValueDtype::kF32, {2048, 2048, 2048, 2048}, false);
  EXPECT_EQ(EndsOf(equal, 2), (Ends{1, 1, 2, 2}));
}

TEST(PartTextTest, SharesOfBlocksFollowTheWork) {
  const auto part = Tensors(ValueDtype::kF32, {65536, 65536, 2048, 65536, 256}, false);
  for (uint64_t blocks = 5; blocks <= 98; ++blocks) {
    const auto ends = EndsOf(part, blocks);
    EXPECT_EQ(ends.back(), blocks);
    EXPECT_EQ(ends[2] - ends[1], 1u);
    EXPECT_EQ(ends[4] - ends[3], 1u);
    // Each of the three large ones has a third of the others.
    for (const size_t large : {0u, 1u, 3u}) {
      const uint64_t begin = large == 0 ? 0 : ends[large - 1];
      EXPECT_NEAR(static_cast<double>(ends[large] - begin), static_cast<double>(blocks - 2) / 3, 1);
    }
  }
}

TEST(PartTextTest, AStageWithoutRowsHasNoBlocks) {
  using Ends = std::vector<unsigned int>;
  PartBuilder part(0, 5);
  const int none = part.Input(ValueDtype::kF32, 64);
  const int share = part.Input(ValueDtype::kF32, 2048, COTUNE_ROWS_SHARE);
  const int one = part.Input(ValueDtype::kF32, 64, COTUNE_ROWS_ONE);
  for (const int input : {none, share, one}) part.Output(part.Node(COTUNE_NODE_NEG, {input}));
  EXPECT_EQ(EndsOf(part.program, 1000), (Ends{0, 5, 6}));
  EXPECT_EQ(EndsOf(part.program, 1), (Ends{0, 1, 1}));
  part.program = WithRows(part.program, 5, 0);
  EXPECT_EQ(EndsOf(part.program, 1000), (Ends{1, 1, 2}));
}

TEST(PartTextTest, TextsHaveNoRows) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const sdk::Program part = RandomPartCase(seed).program;
    EXPECT_EQ(TextOf(part), TextOf(WithRows(part, 17, 5))) << "seed " << seed;
  }
}

TEST(PartTextTest, ARowHasMoreThreadsThan256WhereItsInputsFitIntoNoFewer) {
  const auto row_threads = [](uint64_t columns, ValueDtype dtype) {
    const sdk::Program part = ResidualNorm(dtype, columns, false);
    return ShapeOf(part, *StagesOf(part)).row_threads;
  };
  EXPECT_EQ(row_threads(8, ValueDtype::kBf16), 1);
  EXPECT_EQ(row_threads(1000, ValueDtype::kBf16), 128);
  EXPECT_EQ(row_threads(2048, ValueDtype::kBf16), 256);
  // Three inputs of 4 words a leaf, and 48 words that a thread holds.
  EXPECT_EQ(row_threads(8192, ValueDtype::kBf16), 256);
  EXPECT_EQ(row_threads(8193, ValueDtype::kBf16), 512);
  EXPECT_EQ(row_threads(8192, ValueDtype::kF32), 512);
  EXPECT_EQ(row_threads(65536, ValueDtype::kBf16), 1024);
}

TEST(PartTextTest, EveryBlockHasWork) {
  const sdk::Program part = ResidualNorm(ValueDtype::kBf16, 8192, false);
  const PartStages stages = *StagesOf(part);
  const PartShape shape = ShapeOf(part, stages);
  for (const uint64_t rows : {0u, 1u, 7u, 100u}) {
    EXPECT_EQ(BlocksOf(WithRows(part, rows, 0), stages, shape, 0), rows);
  }
}

// What other rows read is overwritten in a launch of its own.
TEST(PartTextTest, AnOutputOfOneRowIntoAnInputComesInALaterLaunch) {
  PartBuilder part(4);
  const int x = part.Input(ValueDtype::kF32, 64);
  const int gamma = part.Input(ValueDtype::kF32, 64, COTUNE_ROWS_ONE);
  part.Output(part.Node(COTUNE_NODE_MUL, {x, gamma}));
  const int next = part.Node(COTUNE_NODE_NEG, {gamma});
  part.Output(next);
  EXPECT_EQ(StagesOf(part.program)->launches, 1);
  part.program.output_into[1] = gamma;
  EXPECT_EQ(StagesOf(part.program)->launches, 2);
}

TEST(PartTextTest, WhatCannotRunIsRefusedWithAReason) {
  PartBuilder integers(1);
  integers.Output(integers.Node(COTUNE_NODE_EXP, {integers.Input(ValueDtype::kI32, 8)}));
  const auto refused = StagesOf(integers.program);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, COTUNE_UNSUPPORTED);
  EXPECT_EQ(
      refused.error().message,
      "value 1: the cuda backend has no operation 15 of integers; cast the operands, or leave "
      "this operation to the caller");
  PartBuilder wide(1);
  wide.Output(wide.Node(COTUNE_NODE_NEG, {wide.Input(ValueDtype::kF32, 65537)}));
  EXPECT_EQ(StagesOf(wide.program).error().status, COTUNE_UNSUPPORTED);
  PartBuilder collective(1);
  collective.Output(
      collective.Node(COTUNE_NODE_COLLECTIVE, {collective.Input(ValueDtype::kF32, 8)}));
  EXPECT_EQ(StagesOf(collective.program).error().status, COTUNE_INVALID_ARGUMENT);
}

}  // namespace
}  // namespace cotune::cuda
