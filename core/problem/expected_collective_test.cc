// A single collective by itself. That its results are right is shown with the evaluator's loops, in
// program_evaluator_collectives_test.cc.
#include "core/problem/expected_collective.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"

namespace cotune {
namespace {

Problem Make(Collective collective, Dtype dtype, int world_size, uint64_t count, int root = 0) {
  Problem problem;
  problem.cls.collective = collective;
  problem.cls.reduction = Reduces(collective) ? Reduction::kSum : Reduction::kNone;
  problem.cls.dtype = dtype;
  problem.cls.world_size = problem.cls.ranks_per_node = world_size;
  problem.cls.root = root;
  problem.count = count;
  return problem;
}

// Bytes that differ by rank and place.
SentByRanks Sent(const Problem& problem) {
  SentByRanks sent;
  for (int rank = 0; rank < problem.cls.world_size; ++rank) {
    auto& buffer =
        sent.emplace_back(problem.send_elements() * SizeBytes(problem.cls.dtype), std::byte{0});
    for (size_t i = 0; i < buffer.size(); ++i) {
      buffer[i] = static_cast<std::byte>(i * 7 + i / 251 + static_cast<size_t>(rank) * 101);
    }
  }
  return sent;
}

// Among all bytes there are NaNs of every kind, which an evaluation as floats does not keep.
TEST(ExpectedCollectiveTest, MovedDataKeepsEveryBit) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF64, Dtype::kF16, Dtype::kBf16, Dtype::kU8}) {
    for (const uint64_t count : {1, 3, 4, 1024}) {
      const Problem problem = Make(Collective::kBroadcast, dtype, 3, count, 2);
      const SentByRanks sent = Sent(problem);
      EXPECT_EQ(*ExpectedBytes(problem, 0, sent), sent[2]) << ToText(problem);
    }
  }
}

TEST(ExpectedCollectiveTest, LongBuffersAreEvaluatedInPiecesWithTheSameResult) {
  for (const Collective collective : AllCollectives()) {
    const int root = collective == Collective::kBroadcast ? 1 : 0;
    const Problem problem = Make(collective, Dtype::kI32, 3, 400'001, root);
    const SentByRanks sent = Sent(problem);
    const auto at_once = ExpectedValue(problem, 1, sent);
    ASSERT_TRUE(at_once.has_value());
    EXPECT_TRUE(*ExpectedBytes(problem, 1, sent) == Encode(*at_once)) << ToText(problem);
  }
}

TEST(ExpectedCollectiveTest, NothingIsExpectedOfNothing) {
  for (const Collective collective : AllCollectives()) {
    const Problem problem = Make(collective, Dtype::kF16, 3, 0);
    const SentByRanks sent(3);
    EXPECT_TRUE(ExpectedBytes(problem, 2, sent)->empty());
    EXPECT_EQ(ExpectedValue(problem, 2, sent)->elements(), 0u);
  }
}

// The bound of an average leaves more than one number only where dividing rounds.
TEST(ExpectedCollectiveTest, AveragesOfSmallIntegersAreExactForPowersOfTwo) {
  for (const int world_size : {2, 3, 4, 8}) {
    Problem problem = Make(Collective::kAllReduce, Dtype::kF32, world_size, 4);
    problem.cls.reduction = Reduction::kAverage;
    SentByRanks sent;
    for (int rank = 0; rank < world_size; ++rank) {
      const float numbers[4] = {1, static_cast<float>(rank), -2, 0};
      sent.emplace_back(sizeof(numbers));
      std::memcpy(sent.back().data(), numbers, sizeof(numbers));
    }
    const auto expected = ExpectedValue(problem, 0, sent);
    ASSERT_TRUE(expected.has_value());
    const bool is_exact = world_size != 3;
    EXPECT_EQ(expected->floats[1].bound == 0, is_exact) << world_size;
  }
}

// In f64 too, whose precision is the evaluator's own.
TEST(ExpectedCollectiveTest, AveragesAreTheNearestToTheExactOnes) {
  for (const int world_size : {3, 5, 7}) {
    Problem problem = Make(Collective::kAllReduce, Dtype::kF64, world_size, 100);
    problem.cls.reduction = Reduction::kAverage;
    SentByRanks sent;
    std::vector<double> averages(100);
    for (int rank = 0; rank < world_size; ++rank) {
      sent.emplace_back(100 * sizeof(double));
      for (int i = 0; i < 100; ++i) {
        const double number = (i * 7 + rank * 13) % 31 - 15;
        std::memcpy(sent.back().data() + static_cast<size_t>(i) * sizeof(double), &number,
                    sizeof(number));
        averages[static_cast<size_t>(i)] += number;
      }
    }
    for (double& each : averages) each /= world_size;
    const auto expected = ExpectedBytes(problem, 0, sent);
    ASSERT_TRUE(expected.has_value());
    EXPECT_EQ(std::memcmp(expected->data(), averages.data(), expected->size()), 0) << world_size;
  }
}

TEST(ExpectedCollectiveTest, BuffersThatDoNotFitAreRefused) {
  const Problem problem = Make(Collective::kAllGather, Dtype::kF32, 2, 4);
  SentByRanks sent = Sent(problem);
  EXPECT_FALSE(ExpectedValue(problem, 2, sent).has_value());
  EXPECT_FALSE(ExpectedBytesOfBlocks(Make(Collective::kAllToAll, Dtype::kF32, 2, 2), sent));
  sent[1].pop_back();
  const auto odd = ExpectedBytes(problem, 0, sent);
  ASSERT_FALSE(odd.has_value());
  EXPECT_NE(odd.error().ToText().find("rank 1 sends 15 bytes instead of 16"), std::string::npos)
      << odd.error().ToText();
  sent.pop_back();
  EXPECT_FALSE(ExpectedBytes(problem, 0, sent).has_value());
}

}  // namespace
}  // namespace cotune
