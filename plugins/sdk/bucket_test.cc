// The pieces of regions with several collectives, and the refusals.
#include "plugins/sdk/bucket.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace cotune::sdk {
namespace {

// Builds regions of f32 values with 4 rows of 8 columns. Inputs come before nodes.
class Region {
 public:
  int Input() {
    ++program.input_count;
    return Append();
  }
  int Node(uint32_t kind, const std::vector<int>& operands) {
    ProgramNode node{.kind = kind, .operand_count = static_cast<int>(operands.size())};
    for (size_t o = 0; o < operands.size(); ++o) node.operands[o] = operands[o];
    program.nodes.push_back(node);
    return Append();
  }
  int Sum(int operand) {
    const int value = Node(COTUNE_NODE_COLLECTIVE, {operand});
    program.nodes.back().collective = Problem{.count = 32};
    return value;
  }
  void Return(int value, int into = -1) {
    program.outputs.push_back(value);
    program.output_into.push_back(into);
  }
  std::string Refusal() const {
    const auto pieces = PiecesOf(program);
    return pieces ? "" : pieces.error().message;
  }

  Program program;

 private:
  int Append() {
    program.values.push_back({.rows = 4, .columns = 8});
    return static_cast<int>(program.values.size()) - 1;
  }
};

TEST(BucketTest, EachPieceHasItsOperationsAndAllInputs) {
  Region region;
  const int a = region.Input();
  const int b = region.Input();
  const int bias = region.Input();
  const int negated = region.Node(COTUNE_NODE_NEG, {b});
  const int sum_a = region.Sum(a);
  const int sum_b = region.Sum(negated);
  const int moved_b = region.Node(COTUNE_NODE_ADD, {sum_b, bias});
  const int moved_a = region.Node(COTUNE_NODE_MUL, {sum_a, bias});
  region.Return(moved_b, b);
  region.Return(moved_a);
  region.Return(sum_b);
  region.program.rounds_values = true;
  region.program.digest = 7;
  const auto pieces = PiecesOf(region.program);
  ASSERT_TRUE(pieces.has_value()) << pieces.error().message;
  ASSERT_EQ(pieces->size(), 2u);
  const BucketPiece& first = pieces->front();
  EXPECT_EQ(first.program.input_count, 3);
  ASSERT_EQ(first.program.nodes.size(), 2u);
  EXPECT_EQ(first.program.values.size(), 5u);
  EXPECT_EQ(first.collective, 3);
  EXPECT_EQ(first.program.nodes[0].operands[0], a);
  EXPECT_EQ(first.program.nodes[1].kind, uint32_t{COTUNE_NODE_MUL});
  EXPECT_EQ(first.program.nodes[1].operands[0], 3);
  EXPECT_EQ(first.program.nodes[1].operands[1], bias);
  EXPECT_EQ(first.program.outputs, std::vector<int32_t>{4});
  EXPECT_EQ(first.program.output_into, std::vector<int32_t>{-1});
  EXPECT_EQ(first.outputs, std::vector<size_t>{1});
  const BucketPiece& second = pieces->back();
  ASSERT_EQ(second.program.nodes.size(), 3u);
  EXPECT_EQ(second.program.nodes[0].kind, uint32_t{COTUNE_NODE_NEG});
  EXPECT_EQ(second.collective, 4);
  EXPECT_EQ(second.program.nodes[1].operands[0], 3);
  EXPECT_EQ(second.program.outputs, (std::vector<int32_t>{5, 4}));
  EXPECT_EQ(second.program.output_into, (std::vector<int32_t>{b, -1}));
  EXPECT_EQ(second.outputs, (std::vector<size_t>{0, 2}));
  for (const BucketPiece& piece : *pieces) {
    EXPECT_TRUE(piece.program.rounds_values);
    EXPECT_EQ(piece.program.digest, 7u);
  }
}

TEST(BucketTest, AnOperationOfTwoCollectivesIsRefused) {
  Region joined;
  const int a = joined.Input();
  const int b = joined.Input();
  joined.Return(joined.Node(COTUNE_NODE_ADD, {joined.Sum(a), joined.Sum(b)}));
  EXPECT_EQ(joined.Refusal(), "value 2 belongs to two collectives of the bucket");
  Region sent_twice;
  const int x = sent_twice.Input();
  const int negated = sent_twice.Node(COTUNE_NODE_NEG, {x});
  sent_twice.Return(sent_twice.Sum(negated));
  sent_twice.Return(sent_twice.Sum(negated));
  EXPECT_EQ(sent_twice.Refusal(), "value 1 belongs to two collectives of the bucket");
  Region chain;
  const int first = chain.Sum(chain.Input());
  chain.Return(chain.Sum(first));
  EXPECT_EQ(chain.Refusal(), "value 1 belongs to two collectives of the bucket");
}

TEST(BucketTest, AnOperationOfNoCollectiveIsRefused) {
  Region region;
  const int a = region.Input();
  region.Return(region.Sum(a));
  region.Return(region.Sum(a));
  region.Return(region.Node(COTUNE_NODE_NEG, {a}));
  EXPECT_EQ(region.Refusal(), "value 3 belongs to no collective of the bucket");
}

TEST(BucketTest, AnOutputOverwritesOnlyWhatItsOwnCollectiveReads) {
  const auto refusal = [](bool is_shared, bool is_read) {
    Region region;
    const int a = region.Input();
    const int b = region.Input();
    const int unread = region.Input();
    const int sum_a = region.Sum(a);
    region.Return(sum_a, is_read ? a : unread);
    region.Return(region.Sum(is_shared ? a : b));
    return region.Refusal();
  };
  EXPECT_EQ(refusal(false, true), "");
  EXPECT_EQ(refusal(true, false), "");
  EXPECT_EQ(refusal(true, true), "output 0 overwrites an input of another collective");
}

}  // namespace
}  // namespace cotune::sdk
