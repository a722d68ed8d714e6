#include "core/problem/program_data.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "core/problem/program_evaluator.h"
#include "core/testing/graph_builder.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using Bytes = std::vector<std::byte>;
using Inputs = std::vector<std::vector<Bytes>>;

constexpr uint32_t kColumns = 200;

// all_reduce, a residual that is overwritten, and a norm.
ProgramGraph ResidualNorm(Dtype dtype = Dtype::kBf16) {
  GraphBuilder builder;
  const ValueIndex x = builder.Input(dtype, Rows::kAll, kColumns);
  const ValueIndex residual = builder.Input(dtype, Rows::kAll, kColumns, true);
  const ValueIndex gamma = builder.Input(dtype, Rows::kOne, kColumns, true);
  const ValueIndex sum = builder.Collect(Collective::kAllReduce, x, Reduction::kSum);
  const ValueIndex stream = builder.Compute(Op::kAdd, {Of(sum), Of(residual)});
  const ValueIndex y = builder.Compute(Op::kRmsNorm, {Of(stream), Of(gamma)}, {1e-6});
  return builder.Finish({{y, -1}, {stream, residual}, {sum, -1}});
}

// Every collective that cuts rows, one behind another, with an input of a share.
ProgramGraph Shares() {
  GraphBuilder builder;
  const ValueIndex x = builder.Input(Dtype::kF32, Rows::kAll, kColumns);
  const ValueIndex own = builder.Input(Dtype::kF32, Rows::kShare, kColumns);
  const ValueIndex scale = builder.Input(Dtype::kF32, Rows::kAll, 1);
  const ValueIndex mine = builder.Collect(Collective::kReduceScatter, x, Reduction::kSum);
  const ValueIndex sum = builder.Compute(Op::kAdd, {Of(mine), Of(own)});
  const ValueIndex all = builder.Collect(Collective::kAllGather, sum);
  const ValueIndex scaled = builder.Compute(Op::kMul, {Of(all), Of(scale)});
  const ValueIndex sent = builder.Collect(Collective::kAllToAll, scaled);
  return builder.Finish({{sum, -1}, {sent, -1}});
}

// The inputs of all ranks for an evaluation at `evaluated` rows of a call with data.rows.
Inputs InputsAt(const ProgramGraph& graph, const ProgramDataSet& data, uint64_t evaluated) {
  Inputs inputs(static_cast<size_t>(data.world_size));
  for (int rank = 0; rank < data.world_size; ++rank) {
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      const ValueType& type = graph.inputs()[i].type;
      const uint64_t rows = type.rows == Rows::kOne   ? 1
                            : type.rows == Rows::kAll ? evaluated
                                                      : evaluated / inputs.size();
      inputs[static_cast<size_t>(rank)].push_back(RepeatedRows(
          InputPeriod(graph, i, rank, data), type.columns * SizeBytes(type.dtype), rows));
    }
  }
  return inputs;
}

std::vector<double> Numbers(const ValueType& type, const Bytes& bytes) {
  const EvaluatedValue value =
      Decode(type, bytes.size() / SizeBytes(type.dtype) / type.columns, bytes);
  std::vector<double> numbers(value.integers.begin(), value.integers.end());
  for (const Bounded& each : value.floats) numbers.push_back(each.value);
  return numbers;
}

TEST(ProgramDataTest, SumsAreExactInEveryDtypeForManyRanks) {
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kF16, Dtype::kF32}) {
    for (const int ranks : {2, 8, 64, 200}) {
      const ProgramGraph graph = ResidualNorm(dtype);
      const ProgramDataSet data{.rows = 64, .world_size = ranks, .salt = 3};
      const uint64_t rows = EvaluatedRows(graph, 64, ranks);
      const auto outputs = *EvaluateProgram(graph, rows, ranks, InputsAt(graph, data, rows));
      double largest = 0;
      for (const Bounded& each : outputs[0][2].floats) {
        EXPECT_EQ(each.bound, 0);
        largest = std::max(largest, std::fabs(each.value));
      }
      EXPECT_GT(largest, 1);
    }
  }
}

TEST(ProgramDataTest, SumsOfWhatIsComputedAreExact) {
  GraphBuilder builder;
  const ValueIndex x = builder.Input(Dtype::kBf16, Rows::kAll, kColumns);
  const ValueIndex scale = builder.Input(Dtype::kBf16, Rows::kOne, kColumns);
  const ValueIndex scaled = builder.Compute(Op::kMul, {Of(x), Of(scale)});
  const ProgramGraph graph =
      builder.Finish({{builder.Collect(Collective::kAllReduce, scaled, Reduction::kSum), -1}});
  const ProgramDataSet data{.rows = 40, .world_size = 64, .salt = 1};
  const uint64_t rows = EvaluatedRows(graph, 40, 64);
  const auto outputs = *EvaluateProgram(graph, rows, 64, InputsAt(graph, data, rows));
  for (const Bounded& each : outputs[0][0].floats) EXPECT_EQ(each.bound, 0);
}

TEST(ProgramDataTest, ProductsAndIntegersStayInTheirRange) {
  for (const Dtype dtype : {Dtype::kU8, Dtype::kI32, Dtype::kBf16}) {
    for (const Reduction reduction : {Reduction::kProduct, Reduction::kSum}) {
      GraphBuilder builder;
      const ValueIndex x = builder.Input(dtype, Rows::kAll, 1);
      const ProgramGraph graph =
          builder.Finish({{builder.Collect(Collective::kAllReduce, x, reduction), -1}});
      const ProgramDataSet data{.rows = 2000, .world_size = 40};
      const Inputs inputs = InputsAt(graph, data, EvaluatedRows(graph, 2000, 40));
      std::vector<double> exact(inputs[0][0].size() / SizeBytes(dtype),
                                reduction == Reduction::kSum ? 0 : 1);
      EXPECT_EQ(exact.size(), 1009u);
      for (const auto& of_rank : inputs) {
        const std::vector<double> numbers = Numbers({dtype, Rows::kAll, 1}, of_rank[0]);
        for (size_t i = 0; i < exact.size(); ++i) {
          exact[i] = reduction == Reduction::kSum ? exact[i] + numbers[i] : exact[i] * numbers[i];
        }
      }
      const auto outputs = *EvaluateProgram(graph, exact.size(), 40, inputs);
      EXPECT_EQ(CountWrong(outputs[0][0], BytesOf(dtype, exact)), 0u) << Name(dtype);
      EXPECT_GT(*std::max_element(exact.begin(), exact.end()), 3);
    }
  }
}

TEST(ProgramDataTest, RanksDifferUnlessTheInputIsReplicated) {
  const ProgramGraph graph = ResidualNorm();
  const ProgramDataSet data{.rows = 64, .world_size = 4};
  EXPECT_NE(InputPeriod(graph, 0, 0, data), InputPeriod(graph, 0, 1, data));
  EXPECT_EQ(InputPeriod(graph, 1, 0, data), InputPeriod(graph, 1, 1, data));
  EXPECT_EQ(InputPeriod(graph, 2, 0, data), InputPeriod(graph, 2, 3, data));
  const ProgramDataSet other{.rows = 64, .world_size = 4, .salt = 1};
  EXPECT_NE(InputPeriod(graph, 0, 0, data), InputPeriod(graph, 0, 0, other));
  EXPECT_NE(InputPeriod(graph, 2, 0, data), InputPeriod(graph, 2, 0, other));
}

TEST(ProgramDataTest, RowsDifferAndOneIsZeroAndOneIsSmall) {
  const ProgramGraph graph = ResidualNorm();
  const ProgramDataSet data{.rows = 64, .world_size = 4};
  for (const size_t input : {0u, 1u}) {
    const std::vector<double> numbers =
        Numbers(graph.inputs()[input].type, InputPeriod(graph, input, 0, data));
    ASSERT_EQ(numbers.size(), 13 * kColumns);
    const auto largest = [&](uint64_t row) {
      const auto first = numbers.begin() + static_cast<ptrdiff_t>(row * kColumns);
      return std::fabs(*std::max_element(
          first, first + kColumns, [](double a, double b) { return std::fabs(a) < std::fabs(b); }));
    };
    EXPECT_EQ(largest(1), 0);
    EXPECT_LT(largest(2), 0.01);
    EXPECT_GT(largest(2), 0);
    for (uint64_t row = 3; row < 13; ++row) {
      EXPECT_GE(largest(row), 3);
      EXPECT_FALSE(std::equal(numbers.begin() + static_cast<ptrdiff_t>(row * kColumns),
                              numbers.begin() + static_cast<ptrdiff_t>((row + 1) * kColumns),
                              numbers.begin()));
    }
  }
}

TEST(ProgramDataTest, WeightsDifferFromTheirNeighbours) {
  const ProgramGraph graph = ResidualNorm();
  const std::vector<double> gamma =
      Numbers(graph.inputs()[2].type, InputPeriod(graph, 2, 0, {.rows = 64, .world_size = 4}));
  for (size_t i = 1; i < gamma.size(); ++i) EXPECT_NE(gamma[i], gamma[i - 1]);
  EXPECT_GT(*std::min_element(gamma.begin(), gamma.end()), 0);
}

TEST(ProgramDataTest, ThePeriodIsOddToRowsAndShares) {
  const ProgramGraph graph = ResidualNorm();
  EXPECT_EQ(PeriodRows(graph, 64, 4), 13u);
  EXPECT_EQ(PeriodRows(graph, 13 * 4, 4), 17u);
  EXPECT_EQ(PeriodRows(graph, 13 * 17 * 4, 4), 19u);
  EXPECT_EQ(PeriodRows(graph, 0, 4), 13u);
}

// Each row of a call equals the row of the evaluation that stands for it.
TEST(ProgramDataTest, FewRowsStandForAllRowsOfACall) {
  for (const ProgramGraph& graph : {ResidualNorm(), Shares()}) {
    for (const int ranks : {1, 3, 4}) {
      for (const uint64_t shares : {1u, 5u, 20u, 26u, 27u, 40u, 65u, 101u}) {
        const uint64_t rows = shares * static_cast<uint64_t>(ranks);
        const ProgramDataSet data{.rows = rows, .world_size = ranks};
        const uint64_t few = EvaluatedRows(graph, rows, ranks);
        ASSERT_LE(few, std::min<uint64_t>(rows, 2 * 23 * static_cast<uint64_t>(ranks)));
        const auto whole = *EvaluateProgram(graph, rows, ranks, InputsAt(graph, data, rows));
        const auto part = *EvaluateProgram(graph, few, ranks, InputsAt(graph, data, few));
        for (size_t rank = 0; rank < whole.size(); ++rank) {
          for (size_t output = 0; output < whole[rank].size(); ++output) {
            const EvaluatedValue& all = whole[rank][output];
            for (uint64_t row = 0; row < all.rows; ++row) {
              const uint64_t stands_for = EvaluatedRowOf(graph, all.type, row, rows, ranks);
              for (uint64_t column = 0; column < kColumns; ++column) {
                const Bounded& seen = part[rank][output].floats.at(stands_for * kColumns + column);
                ASSERT_EQ(all.floats[row * kColumns + column].value, seen.value) << row;
                ASSERT_EQ(all.floats[row * kColumns + column].bound, seen.bound) << row;
              }
            }
          }
        }
      }
    }
  }
}

TEST(ProgramDataTest, TimedDataLeavesAnOverwrittenResidualAsItIs) {
  const ProgramGraph graph = ResidualNorm();
  for (const int ranks : {1, 2, 5, 8}) {
    const ProgramDataSet data{.rows = 64, .world_size = ranks, .cancels_over_ranks = true};
    const uint64_t rows = EvaluatedRows(graph, 64, ranks);
    const Inputs inputs = InputsAt(graph, data, rows);
    const auto outputs = *EvaluateProgram(graph, rows, ranks, inputs);
    for (size_t rank = 0; rank < inputs.size(); ++rank) {
      EXPECT_TRUE(Encode(outputs[rank][1]) == inputs[rank][1]) << ranks;
    }
    if (ranks == 1) continue;
    const std::vector<double> x = Numbers(graph.inputs()[0].type, inputs[0][0]);
    EXPECT_GE(*std::max_element(x.begin(), x.end()), 3);
  }
}

}  // namespace
}  // namespace cotune
