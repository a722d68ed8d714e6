// Parts are right by hand-made values, also where an output overwrites an input.
#include "plugins/fake/part.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace cotune::fake {
namespace {

using sdk::ProgramNode;
using sdk::ValueDtype;

sdk::Value Rows(ValueDtype dtype, uint64_t rows, uint64_t columns) {
  return {.dtype = dtype, .rows_kind = COTUNE_ROWS_SHARE, .rows = rows, .columns = columns};
}

ProgramNode Node(uint32_t kind, std::vector<int32_t> operands) {
  ProgramNode node{.kind = kind, .operand_count = static_cast<int>(operands.size())};
  for (size_t i = 0; i < operands.size(); ++i) node.operands[i] = operands[i];
  return node;
}

// %0 = [2, 3]; %1 = one row of 3; %2 = add %0, %1; %3 = relu %2; %4 = row_sum %3; %5 = mul %4, 0.5
TEST(PartTest, ComputesEveryOperationInOrder) {
  sdk::Program part;
  part.input_count = 2;
  part.values = {
      Rows(ValueDtype::kF32, 2, 3), {.rows_kind = COTUNE_ROWS_ONE, .rows = 1, .columns = 3},
      Rows(ValueDtype::kF32, 2, 3), Rows(ValueDtype::kF32, 2, 3),
      Rows(ValueDtype::kF32, 2, 1), Rows(ValueDtype::kF32, 2, 1)};
  part.nodes = {Node(COTUNE_NODE_ADD, {0, 1}), Node(COTUNE_NODE_RELU, {2}),
                Node(COTUNE_NODE_ROW_SUM, {3}), Node(COTUNE_NODE_MUL, {4, -1})};
  part.nodes[3].literals[1] = 0.5;
  part.outputs = {3, 5};
  part.output_into = {0, -1};
  std::vector<float> data = {1, -2, 3, -4, 5, 6};
  const std::vector<float> bias = {1, 1, -10};
  std::vector<float> halves(2);
  const void* const inputs[] = {data.data(), bias.data()};
  void* const outputs[] = {data.data(), halves.data()};
  const auto ran = RunPart(part, inputs, outputs);
  ASSERT_TRUE(ran.has_value()) << ran.error().message;
  EXPECT_EQ(data, (std::vector<float>{2, 0, 0, 0, 6, 0}));
  EXPECT_EQ(halves, (std::vector<float>{1, 3}));
}

// 2049 has no half: it becomes 2048 before 1 is taken away.
TEST(PartTest, RoundsEveryValueToItsDtype) {
  sdk::Program part;
  part.input_count = 1;
  part.values.assign(4, Rows(ValueDtype::kF32, 1, 1));
  part.values[1].dtype = part.values[2].dtype = ValueDtype::kF16;
  part.nodes = {Node(COTUNE_NODE_CAST, {0}), Node(COTUNE_NODE_SUB, {1, -1}),
                Node(COTUNE_NODE_CAST, {2})};
  part.nodes[1].literals[1] = 1;
  part.outputs = {3};
  part.output_into = {-1};
  const float from = 2049;
  float to = 0;
  const void* const inputs[] = {&from};
  void* const outputs[] = {&to};
  const auto ran = RunPart(part, inputs, outputs);
  ASSERT_TRUE(ran.has_value()) << ran.error().message;
  EXPECT_EQ(to, 2047);
}

TEST(PartTest, ComparesAndConvertsIntegers) {
  sdk::Program part;
  part.input_count = 2;
  part.values = {Rows(ValueDtype::kI32, 3, 1), Rows(ValueDtype::kI32, 3, 1),
                 Rows(ValueDtype::kU8, 3, 1), Rows(ValueDtype::kI32, 3, 1),
                 Rows(ValueDtype::kI8, 3, 1)};
  part.nodes = {Node(COTUNE_NODE_LESS, {0, 1}), Node(COTUNE_NODE_WHERE, {2, 0, 1}),
                Node(COTUNE_NODE_CAST, {3})};
  part.outputs = {2, 4};
  part.output_into = {-1, -1};
  const std::vector<int32_t> left = {1, 5, 300};
  const std::vector<int32_t> right = {2, -7, 257};
  std::vector<uint8_t> is_less(3);
  std::vector<int8_t> least(3);
  const void* const inputs[] = {left.data(), right.data()};
  void* const outputs[] = {is_less.data(), least.data()};
  const auto ran = RunPart(part, inputs, outputs);
  ASSERT_TRUE(ran.has_value()) << ran.error().message;
  EXPECT_EQ(is_less, (std::vector<uint8_t>{1, 0, 0}));
  EXPECT_EQ(least, (std::vector<int8_t>{1, -7, 1}));
}

TEST(PartTest, ValuesWithoutRowsLieNowhere) {
  sdk::Program part;
  part.input_count = 1;
  part.values.assign(2, Rows(ValueDtype::kF32, 0, 4));
  part.nodes = {Node(COTUNE_NODE_NEG, {0})};
  part.outputs = {1};
  part.output_into = {-1};
  const void* const inputs[] = {nullptr};
  void* const outputs[] = {nullptr};
  EXPECT_TRUE(RunPart(part, inputs, outputs).has_value());
}

}  // namespace
}  // namespace cotune::fake
