// The reference against answers that were worked out by hand, and its comparison against answers
// that are wrong.
#include "tests/gpu/reference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <set>

#include "core/base/float16.h"

namespace cotune::gputest {
namespace {

using ::testing::HasSubstr;

Problem ProblemOf(Collective collective, Dtype dtype, Reduction reduction, int world_size,
                  uint64_t count) {
  Problem problem;
  problem.cls.collective = collective;
  problem.cls.dtype = dtype;
  problem.cls.reduction = reduction;
  problem.cls.world_size = problem.cls.ranks_per_node = world_size;
  problem.count = count;
  return problem;
}

template <typename T>
std::vector<T> As(const std::vector<std::byte>& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

template <typename T>
std::vector<std::byte> Bytes(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

template <typename T>
std::vector<T> Sent(const Problem& problem, int rank, Pattern pattern = Pattern::kExact) {
  return As<T>(SendData(problem, rank, pattern, 7));
}

TEST(Reference, SumsOverRanks) {
  const Problem p = ProblemOf(Collective::kAllReduce, Dtype::kF32, Reduction::kSum, 3, 5);
  const auto a = Sent<float>(p, 0), b = Sent<float>(p, 1), c = Sent<float>(p, 2);
  const auto right = As<float>(RightAnswer(p, 1, Pattern::kExact, 7));
  ASSERT_EQ(right.size(), 5u);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(right[i], a[i] + b[i] + c[i]);
}

TEST(Reference, GivesEachRankItsBlockOfTheSum) {
  const Problem p = ProblemOf(Collective::kReduceScatter, Dtype::kI64, Reduction::kMax, 2, 3);
  const auto a = Sent<int64_t>(p, 0, Pattern::kRandom), b = Sent<int64_t>(p, 1, Pattern::kRandom);
  ASSERT_EQ(a.size(), 6u);
  const auto right = As<int64_t>(RightAnswer(p, 1, Pattern::kRandom, 7));
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(right[i], std::max(a[3 + i], b[3 + i]));
}

TEST(Reference, WrapsIntegersAroundAndTruncatesTheirAverage) {
  const Problem p = ProblemOf(Collective::kAllReduce, Dtype::kU8, Reduction::kAverage, 3, 64);
  const auto a = Sent<uint8_t>(p, 0, Pattern::kRandom), b = Sent<uint8_t>(p, 1, Pattern::kRandom),
             c = Sent<uint8_t>(p, 2, Pattern::kRandom);
  const auto right = As<uint8_t>(RightAnswer(p, 0, Pattern::kRandom, 7));
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(right[i], (a[i] + b[i] + c[i]) % 256 / 3);
}

TEST(Reference, RoundsHalvesOnceAfterAllRanks) {
  const Problem p = ProblemOf(Collective::kAllReduce, Dtype::kBf16, Reduction::kSum, 4, 100);
  const auto right = As<uint16_t>(RightAnswer(p, 0, Pattern::kRandom, 7));
  for (size_t i = 0; i < 100; ++i) {
    float sum = F32FromBf16(Sent<uint16_t>(p, 0, Pattern::kRandom)[i]);
    for (int r = 1; r < 4; ++r) sum += F32FromBf16(Sent<uint16_t>(p, r, Pattern::kRandom)[i]);
    EXPECT_EQ(right[i], Bf16FromF32(sum));
  }
}

TEST(Reference, MovesBlocks) {
  Problem p = ProblemOf(Collective::kAllToAll, Dtype::kI32, Reduction::kNone, 3, 2);
  const auto from_2 = Sent<int32_t>(p, 2, Pattern::kBits);
  const auto right = As<int32_t>(RightAnswer(p, 1, Pattern::kBits, 7));
  EXPECT_EQ(right[4], from_2[2]);
  EXPECT_EQ(right[5], from_2[3]);
  p.cls.collective = Collective::kAllGather;
  const auto block = Sent<int32_t>(p, 2, Pattern::kBits);
  EXPECT_EQ(As<int32_t>(RightAnswer(p, 0, Pattern::kBits, 7))[5], block[1]);
  p.cls.collective = Collective::kBroadcast;
  p.cls.root = 2;
  EXPECT_EQ(RightAnswer(p, 0, Pattern::kBits, 7), SendData(p, 2, Pattern::kBits, 7));
}

TEST(Reference, DataDiffersByRankSaltAndElement) {
  const Problem p = ProblemOf(Collective::kAllGather, Dtype::kI64, Reduction::kNone, 2, 1000);
  EXPECT_NE(SendData(p, 0, Pattern::kBits, 1), SendData(p, 1, Pattern::kBits, 1));
  EXPECT_NE(SendData(p, 0, Pattern::kBits, 1), SendData(p, 0, Pattern::kBits, 2));
  const Problem floats = ProblemOf(Collective::kAllGather, Dtype::kF64, Reduction::kNone, 2, 1000);
  const auto values = Sent<double>(floats, 0, Pattern::kRandom);
  EXPECT_EQ(std::set<double>(values.begin(), values.end()).size(), 1000u);
}

TEST(Reference, BitsHaveWhatOwnKernelsCannotSendAsItIs) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kU8, Dtype::kI64}) {
    const Problem p = ProblemOf(Collective::kBroadcast, dtype, Reduction::kNone, 2, 8000);
    std::map<uint64_t, int> found;
    for (const uint64_t bits : As<uint64_t>(SendData(p, 0, Pattern::kBits, 1))) ++found[bits];
    EXPECT_GT(found[kCannotBeSent], 5);
    EXPECT_GT(found[kCannotBeSent ^ 1], 5);
    EXPECT_GT(found.size(), 100u);
  }
}

TEST(Reference, SpecialDataHasEveryKind) {
  const Problem p = ProblemOf(Collective::kAllReduce, Dtype::kF16, Reduction::kSum, 2, 600);
  std::set<int> kinds;
  for (uint16_t bits : Sent<uint16_t>(p, 0, Pattern::kSpecial)) {
    const float value = F32FromF16(bits);
    if (value == 0) {
      kinds.insert(std::signbit(value) ? 100 : 101);
    } else if (std::isfinite(value) && std::fabs(value) < 0x1p-14f) {
      kinds.insert(FP_SUBNORMAL);
    } else {
      kinds.insert(std::isfinite(value) ? (std::fabs(value) == 65504.0f ? 102 : FP_NORMAL)
                                        : std::fpclassify(value));
    }
  }
  EXPECT_EQ(kinds.size(), 7u);
  for (std::byte b : SendData(p, 0, Pattern::kSpecial, 7, false)) EXPECT_NE(b, std::byte{0x7E});
}

TEST(Reference, SpecialAndExactDataGiveTheSameInAnyOrder) {
  for (Pattern pattern : {Pattern::kExact, Pattern::kSpecial}) {
    for (Reduction reduction : {Reduction::kSum, Reduction::kProduct}) {
      const Problem p = ProblemOf(Collective::kAllReduce, Dtype::kF32, reduction, 8, 2000);
      std::vector<float> total = Sent<float>(p, 7, pattern);
      for (int rank = 6; rank >= 0; --rank) {
        const auto next = Sent<float>(p, rank, pattern);
        for (size_t i = 0; i < total.size(); ++i) {
          total[i] = reduction == Reduction::kSum ? total[i] + next[i] : total[i] * next[i];
        }
      }
      const auto right = RightAnswer(p, 0, pattern, 7);
      EXPECT_EQ(Compare(p, Agreement::kValues, right, Bytes(total)).first, "") << Name(pattern);
    }
  }
}

TEST(Compare, NamesTheFirstElementThatDiffers) {
  const Problem p = ProblemOf(Collective::kAllReduce, Dtype::kF32, Reduction::kSum, 2, 4);
  const auto right = Bytes<float>({1, 2, 3, 4});
  EXPECT_EQ(Compare(p, Agreement::kBits, right, right).count, 0u);
  const Mismatches found = Compare(p, Agreement::kBits, right, Bytes<float>({1, 2, 5, 6}));
  EXPECT_EQ(found.count, 2u);
  EXPECT_THAT(found.first, HasSubstr("element 2 is 0x40a00000 (5), not 0x40400000 (3)"));
}

TEST(Compare, LooksAsCloselyAsItIsTold) {
  const Problem p = ProblemOf(Collective::kAllReduce, Dtype::kF32, Reduction::kAverage, 2, 1);
  const auto differs = [&](Agreement agreement, float right, float answer) {
    return Compare(p, agreement, Bytes<float>({right}), Bytes<float>({answer})).count != 0;
  };
  const float nan = std::nanf("");
  EXPECT_FALSE(differs(Agreement::kValues, nan, -nan));
  EXPECT_TRUE(differs(Agreement::kValues, nan, 0));
  EXPECT_TRUE(differs(Agreement::kValues, 0.0f, -0.0f));
  EXPECT_FALSE(differs(Agreement::kUnsignedZeros, 0.0f, -0.0f));
  EXPECT_TRUE(differs(Agreement::kUnsignedZeros, 0.0f, 1e-45f));
}

TEST(Compare, RoundingMayTakeAnAnswerAsFarAsItsBounds) {
  for (const Dtype dtype : {Dtype::kF32, Dtype::kF64, Dtype::kF16, Dtype::kBf16}) {
    const Problem p = ProblemOf(Collective::kReduceScatter, dtype, Reduction::kSum, 4, 500);
    const auto right = RightAnswer(p, 1, Pattern::kRandom, 7);
    const auto bounded = BoundedAnswer(p, 1, Pattern::kRandom, 7);
    ASSERT_TRUE(bounded.has_value());
    const auto wrong = [&](const std::vector<std::byte>& answer) {
      return Compare(p, Agreement::kBounds, right, answer, &*bounded);
    };
    EXPECT_EQ(wrong(right).first, "");
    EXPECT_EQ(wrong(Encode(*bounded)).first, "");
    // Another rank's block, and a rank that is missing.
    EXPECT_GT(wrong(RightAnswer(p, 2, Pattern::kRandom, 7)).count, 490u);
    Problem fewer = p;
    fewer.cls.world_size = fewer.cls.ranks_per_node = 3;
    EXPECT_GT(wrong(RightAnswer(fewer, 1, Pattern::kRandom, 7)).count, 470u);
    // Beyond its bound, one element is wrong.
    EvaluatedValue off = *bounded;
    off.floats[77].value += 3 * off.floats[77].bound;
    const Mismatches found = wrong(Encode(off));
    EXPECT_EQ(found.count, 1u);
    EXPECT_THAT(found.first, HasSubstr("element 77 is "));
  }
}

// The same bytes for integers, moved data and floats whose sums are exact: no bounds.
TEST(Compare, AWrongByteASwappedBlockAMissingRankAndAnotherRootDiffer) {
  for (const Collective collective : AllCollectives()) {
    const Reduction reduction = Reduces(collective) ? Reduction::kSum : Reduction::kNone;
    const Problem p = ProblemOf(collective, Dtype::kBf16, reduction, 3, 90);
    const auto right = RightAnswer(p, 0, Pattern::kExact, 7);
    const auto wrong = [&](const std::vector<std::byte>& answer) {
      return Compare(p, Agreement::kBits, right, answer).count;
    };
    EXPECT_EQ(wrong(right), 0u);
    auto answer = right;
    answer.back() ^= std::byte{1};
    EXPECT_EQ(wrong(answer), 1u);
    answer = right;
    std::swap_ranges(answer.begin(), answer.begin() + 60, answer.begin() + 60);
    EXPECT_GT(wrong(answer), 50u);
    Problem other = p;
    if (Reduces(collective)) {
      other.cls.world_size = other.cls.ranks_per_node = 2;
    } else if (collective == Collective::kBroadcast) {
      other.cls.root = 1;
    } else {
      continue;
    }
    EXPECT_GT(wrong(RightAnswer(other, 0, Pattern::kExact, 7)), 80u);
  }
}

TEST(Compare, OnlyFloatsMayDiffer) {
  const Problem p = ProblemOf(Collective::kAllReduce, Dtype::kI32, Reduction::kAverage, 2, 1);
  EXPECT_EQ(Compare(p, Agreement::kValues, Bytes<int32_t>({1}), Bytes<int32_t>({2})).count, 1u);
  EXPECT_FALSE(BoundedAnswer(p, 0, Pattern::kRandom, 7).has_value());
  EXPECT_EQ(PromiseOf(*ChoiceId::Parse("nccl/ring"), p, Pattern::kRandom), Agreement::kBits);
}

}  // namespace
}  // namespace cotune::gputest
