// Collectives, against loops that add up, move and compare what the ranks have: the only other way
// to their results in the tree, so that everything else can be checked with the evaluator.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "core/base/float16.h"
#include "core/problem/expected_collective.h"
#include "core/problem/program_evaluator.h"
#include "core/testing/graph_builder.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using Inputs = std::vector<std::vector<std::vector<std::byte>>>;
using Numbers = std::vector<std::vector<double>>;  // of each rank

constexpr uint32_t kColumns = 3;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

ProgramGraph Collective1(Collective collective, Reduction reduction, Dtype dtype, Rows rows,
                         int32_t root = 0) {
  GraphBuilder builder;
  const ValueIndex x = builder.Input(dtype, rows, kColumns);
  const ValueIndex y = builder.Collect(collective, x, reduction, root);
  return builder.Finish({{y, -1}});
}

Inputs Bytes(Dtype dtype, const Numbers& numbers) {
  Inputs inputs;
  for (const auto& each : numbers) inputs.push_back({BytesOf(dtype, each)});
  return inputs;
}

// Small integers that differ by rank and element.
Numbers SmallIntegers(int ranks, uint64_t elements) {
  Numbers numbers;
  for (int rank = 0; rank < ranks; ++rank) {
    numbers.emplace_back();
    for (uint64_t i = 0; i < elements; ++i) {
      numbers.back().push_back(
          static_cast<double>((i * 7 + i / 5 + static_cast<uint64_t>(rank) * 5) % 6) + 1);
    }
  }
  return numbers;
}

double Reduced(Reduction reduction, const Numbers& numbers, size_t element) {
  double result = numbers[0][element];
  for (size_t rank = 1; rank < numbers.size(); ++rank) {
    const double each = numbers[rank][element];
    if (reduction == Reduction::kProduct) result *= each;
    if (reduction == Reduction::kMin) result = std::min(result, each);
    if (reduction == Reduction::kMax) result = std::max(result, each);
    if (reduction == Reduction::kSum || reduction == Reduction::kAverage) result += each;
  }
  return reduction == Reduction::kAverage ? result / static_cast<double>(numbers.size()) : result;
}

// Exactly these bytes are right, and no bound lets others be.
void ExpectExactly(const EvaluatedValue& value, const std::vector<double>& numbers) {
  const Dtype dtype = value.type.dtype;
  EXPECT_EQ(CountWrong(value, BytesOf(dtype, numbers)), 0u) << Name(dtype);
  for (const Bounded& each : value.floats) EXPECT_EQ(each.bound, 0);
  EXPECT_TRUE(value.integer_bounds.empty());
}

// The same for a single collective by itself, which has one column.
void ExpectBytes(Collective collective, Reduction reduction, Dtype dtype, uint64_t count, int root,
                 size_t rank, const Numbers& sent, const std::vector<double>& received) {
  Problem problem;
  problem.cls.collective = collective;
  problem.cls.reduction = reduction;
  problem.cls.dtype = dtype;
  problem.cls.world_size = problem.cls.ranks_per_node = static_cast<int32_t>(sent.size());
  problem.cls.root = root;
  problem.count = count;
  SentByRanks bytes;
  for (const auto& each : sent) bytes.push_back(BytesOf(dtype, each));
  const auto expected = ExpectedBytes(problem, static_cast<int>(rank), bytes);
  ASSERT_TRUE(expected.has_value()) << expected.error().ToText();
  EXPECT_EQ(*expected, BytesOf(dtype, received)) << ToText(problem) << " on rank " << rank;
}

TEST(ProgramEvaluatorCollectivesTest, ReductionsOfSmallIntegersAreExact) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    const auto world = static_cast<uint64_t>(ranks);
    const uint64_t rows = 2 * world;
    const Numbers numbers = SmallIntegers(ranks, rows * kColumns);
    for (const Dtype dtype : {Dtype::kF32, Dtype::kF64, Dtype::kF16, Dtype::kI32, Dtype::kI64}) {
      for (const Reduction reduction :
           {Reduction::kSum, Reduction::kProduct, Reduction::kMin, Reduction::kMax}) {
        std::vector<double> all;
        for (size_t i = 0; i < numbers[0].size(); ++i)
          all.push_back(Reduced(reduction, numbers, i));
        const auto reduced =
            *EvaluateProgram(Collective1(Collective::kAllReduce, reduction, dtype, Rows::kAll),
                             rows, ranks, Bytes(dtype, numbers));
        const auto shares =
            *EvaluateProgram(Collective1(Collective::kReduceScatter, reduction, dtype, Rows::kAll),
                             rows, ranks, Bytes(dtype, numbers));
        for (size_t rank = 0; rank < world; ++rank) {
          ExpectExactly(reduced[rank][0], all);
          const auto first = all.begin() + static_cast<ptrdiff_t>(rank * 2 * kColumns);
          const std::vector<double> own(first, first + 2 * kColumns);
          ExpectExactly(shares[rank][0], own);
          ExpectBytes(Collective::kAllReduce, reduction, dtype, all.size(), 0, rank, numbers, all);
          ExpectBytes(Collective::kReduceScatter, reduction, dtype, own.size(), 0, rank, numbers,
                      own);
        }
      }
    }
  }
}

TEST(ProgramEvaluatorCollectivesTest, DataIsOnlyMoved) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    const auto world = static_cast<uint64_t>(ranks);
    const Numbers numbers = SmallIntegers(ranks, world * kColumns);
    const Dtype dtype = Dtype::kF8E4M3;
    const auto evaluate = [&](Collective collective, Rows input_rows, uint64_t rows) {
      return *EvaluateProgram(Collective1(collective, Reduction::kNone, dtype, input_rows,
                                          collective == Collective::kBroadcast ? ranks - 1 : 0),
                              rows, ranks, Bytes(dtype, numbers));
    };
    const auto gathered = evaluate(Collective::kAllGather, Rows::kShare, world * world);
    const auto exchanged = evaluate(Collective::kAllToAll, Rows::kAll, world);
    const auto sent = evaluate(Collective::kBroadcast, Rows::kAll, world);
    std::vector<double> all;
    for (const auto& each : numbers) all.insert(all.end(), each.begin(), each.end());
    for (size_t rank = 0; rank < world; ++rank) {
      ExpectExactly(gathered[rank][0], all);
      ExpectExactly(sent[rank][0], numbers.back());
      std::vector<double> mine;
      for (const auto& each : numbers) {
        mine.insert(mine.end(), each.begin() + static_cast<ptrdiff_t>(rank * kColumns),
                    each.begin() + static_cast<ptrdiff_t>((rank + 1) * kColumns));
      }
      ExpectExactly(exchanged[rank][0], mine);
      for (const Dtype each : {Dtype::kF32, Dtype::kBf16, Dtype::kF64, Dtype::kU8}) {
        const uint64_t own = numbers[0].size();
        ExpectBytes(Collective::kAllGather, Reduction::kNone, each, own, 0, rank, numbers, all);
        ExpectBytes(Collective::kAllToAll, Reduction::kNone, each, kColumns, 0, rank, numbers,
                    mine);
        ExpectBytes(Collective::kBroadcast, Reduction::kNone, each, own, ranks - 1, rank, numbers,
                    numbers.back());
      }
    }
  }
}

TEST(ProgramEvaluatorCollectivesTest, IntegersWrapAroundAndTheirAverageGoesTowardZero) {
  const auto evaluate = [](Reduction reduction, Dtype dtype, const Numbers& numbers) {
    return (*EvaluateProgram(Collective1(Collective::kAllReduce, reduction, dtype, Rows::kAll), 1,
                             static_cast<int>(numbers.size()), Bytes(dtype, numbers)))[0][0];
  };
  const Numbers bytes = {{200, 3, 7}, {100, 2, 0}};
  const Numbers numbers = {{100, -100, -7}, {100, -100, 0}};
  EXPECT_EQ(evaluate(Reduction::kSum, Dtype::kU8, bytes).integers,
            (std::vector<int64_t>{44, 5, 7}));
  EXPECT_EQ(evaluate(Reduction::kAverage, Dtype::kU8, bytes).integers,
            (std::vector<int64_t>{22, 2, 3}));
  EXPECT_EQ(evaluate(Reduction::kAverage, Dtype::kI32, numbers).integers,
            (std::vector<int64_t>{100, -100, -3}));
  EXPECT_EQ(evaluate(Reduction::kProduct, Dtype::kU8, {{20, 0, 255}, {20, 3, 255}}).integers,
            (std::vector<int64_t>{144, 0, 1}));
}

template <typename Round>
void ExpectSumsInAnyOrderAreRight(Dtype dtype, const Round& round) {
  std::mt19937_64 random(3);
  std::normal_distribution<double> normal(0, 1);
  for (const size_t ranks : {2u, 3u, 5u}) {
    Numbers numbers(ranks);
    for (auto& each : numbers) {
      for (int i = 0; i < 300; ++i) each.push_back(round(static_cast<float>(normal(random))));
    }
    const auto evaluate = [&](Reduction reduction) {
      return (*EvaluateProgram(Collective1(Collective::kAllReduce, reduction, dtype, Rows::kAll),
                               100, static_cast<int>(ranks), Bytes(dtype, numbers)))[0][0];
    };
    std::vector<double> rounded_always(300);
    std::vector<double> rounded_once(300);
    std::vector<double> average(300);
    std::vector<double> scaled_before(300);
    std::vector<double> product(300, 1);
    const auto n = static_cast<float>(ranks);
    for (size_t i = 0; i < 300; ++i) {
      float wide = 0;
      for (size_t rank = 0; rank < ranks; ++rank) {
        const auto each = static_cast<float>(numbers[ranks - 1 - rank][i]);
        rounded_always[i] = round(static_cast<float>(rounded_always[i]) + each);
        wide += static_cast<float>(numbers[rank][i]);
        scaled_before[i] = round(static_cast<float>(scaled_before[i]) + round(each * round(1 / n)));
        product[i] = round(static_cast<float>(product[i]) * each);
      }
      rounded_once[i] = round(wide);
      average[i] = round(wide / n);
    }
    EXPECT_EQ(CountWrong(evaluate(Reduction::kSum), BytesOf(dtype, rounded_always)), 0u);
    EXPECT_EQ(CountWrong(evaluate(Reduction::kSum), BytesOf(dtype, rounded_once)), 0u);
    EXPECT_GT(CountWrong(evaluate(Reduction::kSum), BytesOf(dtype, average)), 280u);
    EXPECT_EQ(CountWrong(evaluate(Reduction::kAverage), BytesOf(dtype, average)), 0u);
    EXPECT_EQ(CountWrong(evaluate(Reduction::kAverage), BytesOf(dtype, scaled_before)), 0u);
    EXPECT_EQ(CountWrong(evaluate(Reduction::kProduct), BytesOf(dtype, product)), 0u);
  }
}

TEST(ProgramEvaluatorCollectivesTest, SumsOfAnyOrderAndRoundingAreRight) {
  ExpectSumsInAnyOrderAreRight(Dtype::kF32, [](float x) { return x; });
  ExpectSumsInAnyOrderAreRight(Dtype::kF16, [](float x) { return F32FromF16(F16FromF32(x)); });
  ExpectSumsInAnyOrderAreRight(Dtype::kBf16, [](float x) { return F32FromBf16(Bf16FromF32(x)); });
}

TEST(ProgramEvaluatorCollectivesTest, SpecialValuesStayWhatTheyAre) {
  const auto evaluate = [](Reduction reduction, const Numbers& numbers) {
    return (
        *EvaluateProgram(Collective1(Collective::kAllReduce, reduction, Dtype::kF16, Rows::kAll), 1,
                         static_cast<int>(numbers.size()), Bytes(Dtype::kF16, numbers)))[0][0];
  };
  const auto right = [](const EvaluatedValue& value, const std::vector<double>& seen) {
    return CountWrong(value, BytesOf(Dtype::kF16, seen)) == 0;
  };
  const auto sum = evaluate(Reduction::kSum, {{kInf, kNan, kInf}, {1, 1, -kInf}});
  EXPECT_TRUE(right(sum, {kInf, kNan, kNan}));
  EXPECT_FALSE(right(sum, {65504, kNan, kNan}));
  EXPECT_FALSE(right(sum, {kInf, 1, kNan}));
  // Partial sums overflow in some orders; a sum that overflows in all of them is infinite.
  const auto order =
      evaluate(Reduction::kSum, {{60000, 60000, 1}, {60000, 60000, 1}, {-60000, 0, 1}});
  EXPECT_EQ(order.floats[0].value, 60000);
  EXPECT_TRUE(right(order, {60000, kInf, 3}));
  EXPECT_TRUE(right(order, {kInf, kInf, 3}));
  EXPECT_FALSE(right(order, {kInf, 60000, 3}));
  EXPECT_FALSE(right(order, {kInf, kInf, 4}));
  // The sum overflows, unless what is added up was divided before.
  const auto average = evaluate(Reduction::kAverage, {{60000, 2, 5}, {60000, 4, 5}});
  EXPECT_EQ(average.floats[0].value, 60000);
  EXPECT_TRUE(right(average, {60000, 3, 5}));
  EXPECT_TRUE(right(average, {kInf, 3, 5}));
  EXPECT_FALSE(right(average, {kInf, 4, 5}));
  const auto product =
      evaluate(Reduction::kProduct, {{20000, kInf, 2}, {20000, 2, 3}, {0x1p-14, 2, 4}});
  EXPECT_TRUE(right(product, {24416, kInf, 24}));
  EXPECT_TRUE(right(product, {kInf, kInf, 24}));
  EXPECT_FALSE(right(product, {kInf, 65504, 24}));
  EXPECT_FALSE(right(product, {kInf, kInf, 25}));
  const auto least = evaluate(Reduction::kMin, {{kInf, -kInf, kNan}, {5, 5, kNan}});
  EXPECT_TRUE(right(least, {5, -kInf, kNan}));
  EXPECT_FALSE(right(least, {5, -kInf, 5}));
}

// Local operations in front of the last collective, beside it and behind it.
TEST(ProgramEvaluatorCollectivesTest, OneRankHasTheValuesThatItHasAmongAll) {
  GraphBuilder builder;
  const ValueIndex x = builder.Input(Dtype::kBf16, Rows::kAll, kColumns);
  const ValueIndex residual = builder.Input(Dtype::kBf16, Rows::kShare, kColumns);
  const ValueIndex sum = builder.Collect(Collective::kReduceScatter, x, Reduction::kSum);
  const ValueIndex stream = builder.Compute(Op::kAdd, {Of(sum), Of(residual)});
  const ValueIndex gathered = builder.Collect(Collective::kAllGather, stream);
  const ValueIndex moved = builder.Collect(Collective::kAllToAll, gathered);
  const ValueIndex tanh = builder.Compute(Op::kTanh, {Of(moved)});
  const ValueIndex scaled = builder.Compute(Op::kMul, {Of(stream), Of(residual)});
  const ProgramGraph graph = builder.Finish({{tanh, -1}, {scaled, -1}, {gathered, -1}});
  Inputs inputs;
  const Numbers numbers = SmallIntegers(3, 6 * kColumns);
  for (const auto& each : numbers) {
    const std::vector<double> share(each.begin(), each.begin() + 2 * kColumns);
    inputs.push_back({BytesOf(Dtype::kBf16, each), BytesOf(Dtype::kBf16, share)});
  }
  const auto all = EvaluateProgram(graph, 6, 3, inputs);
  ASSERT_TRUE(all.has_value()) << all.error().ToText();
  for (size_t rank = 0; rank < 3; ++rank) {
    const auto own = EvaluateProgramOnRank(graph, 6, 3, static_cast<int>(rank), inputs);
    ASSERT_TRUE(own.has_value()) << own.error().ToText();
    ASSERT_EQ(own->size(), 3u);
    for (size_t output = 0; output < 3; ++output) {
      const auto& expected = (*all)[rank][output].floats;
      ASSERT_EQ((*own)[output]->floats.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ((*own)[output]->floats[i].value, expected[i].value);
        EXPECT_EQ((*own)[output]->floats[i].bound, expected[i].bound);
      }
    }
  }
  EXPECT_FALSE(EvaluateProgramOnRank(graph, 6, 3, 3, inputs).has_value());
}

TEST(ProgramEvaluatorCollectivesTest, RowsWithoutWholeSharesAndForeignRootsAreRefused) {
  const Numbers numbers = SmallIntegers(2, 3 * kColumns);
  const auto scatter =
      Collective1(Collective::kReduceScatter, Reduction::kSum, Dtype::kF32, Rows::kAll);
  EXPECT_FALSE(EvaluateProgram(scatter, 3, 2, Bytes(Dtype::kF32, numbers)).has_value());
  const auto broadcast =
      Collective1(Collective::kBroadcast, Reduction::kNone, Dtype::kF32, Rows::kAll, 2);
  EXPECT_FALSE(EvaluateProgram(broadcast, 3, 2, Bytes(Dtype::kF32, numbers)).has_value());
}

}  // namespace
}  // namespace cotune
