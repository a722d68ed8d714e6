// The generated text of one part as a whole, and what texts do and do not depend on.
#include "plugins/cuda/parts/part_text.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

#include "plugins/cuda/parts/part_shape.h"
#include "plugins/cuda/testing/part_cases.h"
#include "plugins/sdk/testing/part_builder.h"

namespace cotune::cuda {
namespace {

using sdk::PartBuilder;
using sdk::PartOperand;
using sdk::ValueDtype;

std::string TextOf(const sdk::Program& program) { return PartText(program, *StagesOf(program)); }

TEST(PartTextTest, ANormHasTheTextOfTheGoldenFile) {
  std::ifstream file("plugins/cuda/parts/part_text.golden");
  std::stringstream golden;
  golden << file.rdbuf();
  const std::string text = TextOf(ResidualNorm(ValueDtype::kBf16, 8192, false));
  EXPECT_EQ(text, golden.str()) << "where the change is meant, this is the new golden file";
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
