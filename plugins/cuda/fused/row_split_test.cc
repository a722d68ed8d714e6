// The value and the numbers that the owner of a row computes for all ranks, and programs for which
// it cannot.
#include "plugins/cuda/parts/row_split.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/problem/program_graph.h"
#include "plugins/cuda/fused/leaf_region.h"
#include "plugins/cuda/testing/part_graph.h"

namespace cotune::cuda {
namespace {

// The operations after the collective of a program. Input 0 of them is its value, the others are
// inputs of the program in their order, and then come the results of the operations.
LeafSide SinkOf(const std::string& lines, uint64_t rows = 8) {
  const auto graph = ProgramGraph::Parse("program p\n" + lines);
  return LeafRegionOf(RegionOf(graph.value().Lower(), rows, 4)).value().sink();
}

std::string ReasonOf(const std::string& lines) {
  const LeafSide sink = SinkOf(lines);
  const auto split = SplitOf(sink.part, sink.stage(), sink.inputs);
  return split ? "" : split.error().message;
}

constexpr char kSum[] = "%s = all_reduce sum %x\n";
const std::string kOperand = "%x = input bf16 [R, 64]\n";

TEST(RowSplitTest, TheValueItselfIsCarriedIfNothingElseIsRead) {
  const LeafSide sink = SinkOf(kOperand + kSum + "%y = softmax %s\nreturn %y\n");
  const auto split = SplitOf(sink.part, sink.stage(), sink.inputs);
  ASSERT_TRUE(split.has_value()) << split.error().message;
  EXPECT_EQ(split->carried, 0);
  EXPECT_EQ(split->numbers.size(), 2u);  // the largest element, and the sum
}

TEST(RowSplitTest, AStreamThatIsAnOutputIsCarried) {
  const LeafSide sink =
      SinkOf(kOperand + "%r = input bf16 [R, 64] replicated\n%g = input bf16 [1, 64]\n" + kSum +
             "%t = add %s, %r\n%y = rms_norm %t, %g, eps=1e-6\n"
             "return %y, %t into %r\n");
  const auto split = SplitOf(sink.part, sink.stage(), sink.inputs);
  ASSERT_TRUE(split.has_value()) << split.error().message;
  EXPECT_EQ(NodeOf(sink.part, split->carried).kind, static_cast<uint32_t>(COTUNE_NODE_ADD));
  EXPECT_EQ(split->carried, sink.part.outputs[1]);
  ASSERT_EQ(split->numbers.size(), 1u);
  EXPECT_TRUE(ReducesColumns(sink.part, split->numbers[0]));
}

// Readers of a stream that is no output see more bits than travel.
TEST(RowSplitTest, AStreamThatIsNotRoundedIsNotCarried) {
  const std::string lines =
      kOperand + "%r = input bf16 [R, 64] replicated\n" + kSum +
      "%t = add %s, %r\n%n = row_sum %t\n%c = cast %n, to=bf16\n%y = mul %t, %c\n";
  EXPECT_EQ(ReasonOf(lines + "return %y, %t\n"), "");
  EXPECT_EQ(ReasonOf(lines + "return %y\n"),
            "operations after the last reduction read input 1, which has several columns in each "
            "row");
}

TEST(RowSplitTest, WhatIsReducedIsTheSameOnAllRanks) {
  EXPECT_EQ(ReasonOf(kOperand + "%g = input bf16 [1, 64]\n" + kSum +
                     "%t = mul %s, %g\n%n = row_sum %t\n%c = cast %n, to=bf16\n%y = mul %s, %c\n"
                     "return %y\n"),
            "operations up to the last reduction read input 1, which is not replicated");
  EXPECT_EQ(ReasonOf(kOperand + "%g = input bf16 [1, 64] replicated\n" + kSum +
                     "%t = mul %s, %g\n%n = row_sum %t\n%c = cast %n, to=bf16\n%y = mul %s, %c\n"
                     "return %y\n"),
            "");
}

// The number of an input is that of the program.
TEST(RowSplitTest, ReasonsNameInputsOfTheProgram) {
  EXPECT_EQ(ReasonOf("%x = input f32 [R, 64]\n%w = input f32 [R, 1]\n%r = input f32 [R, 64]\n"
                     "%z = mul %x, %w\n%s = all_reduce sum %z\n%t = add %s, %r\n"
                     "%n = row_sum %t\n%y = mul %t, %n\nreturn %y\n"),
            "operations up to the last reduction read input 2, which is not replicated");
}

// After the reductions each rank reads operands of its own.
TEST(RowSplitTest, OperandsOfAllRowsAreReadByEachRank) {
  const std::string head = kOperand + "%b = input bf16 [1, 64]\n%w = input f32 [R, 1]\n" + kSum +
                           "%f = cast %s, to=f32\n%n = row_sum %f\n%v = mul %n, %w\n";
  EXPECT_EQ(ReasonOf(head + "%u = cast %v, to=bf16\n%t = mul %s, %u\n%y = add %t, %b\n"
                            "return %y\n"),
            "");
  EXPECT_EQ(ReasonOf(head + "%u = cast %v, to=bf16\n%t = mul %s, %u\n%y = add %t, %b\n"
                            "return %y, %v into %w\n"),
            "output 1 overwrites an input of one number a row");
}

TEST(RowSplitTest, ReductionsThatDoNotFitAPackAreRefused) {
  EXPECT_EQ(ReasonOf("%x = input f64 [R, 64]\n" + std::string(kSum) +
                     "%n = row_sum %s\n%y = mul %s, %n\nreturn %y\n"),
            "a reduction is not computed in 32 bits");
  std::string lines = kOperand + kSum;
  std::string outputs = "return %s";
  for (int i = 0; i < 5; ++i) {
    const std::string n = std::to_string(i);
    lines += "%a" + n + " = mul %s, " + std::to_string(i + 2) + ".0\n%n" + n + " = row_sum %a" + n +
             "\n";
    outputs += ", %n" + n;
  }
  EXPECT_EQ(ReasonOf(lines + outputs + "\n"), "a row has 5 reductions; 4 fit into a pack");
}

TEST(RowSplitTest, OneRowAndOperationsWithoutReductionsHaveNothingToSplit) {
  EXPECT_EQ(
      ReasonOf("%x = input bf16 [1, 64]\n" + std::string(kSum) + "%y = softmax %s\nreturn %y\n"),
      "a value of one row has one owner");
  EXPECT_EQ(ReasonOf("%x = input bf16 [R, 77]\n%b = input bf16 [1, 77]\n" + std::string(kSum) +
                     "%y = add %s, %b\nreturn %y\n"),
            "no operation reduces rows");
}

}  // namespace
}  // namespace cotune::cuda
