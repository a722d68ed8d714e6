// Row reductions and compounds, against plain float loops.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "core/base/float16.h"
#include "core/base/float8.h"
#include "core/problem/bounded.h"
#include "core/problem/program_evaluator.h"
#include "core/testing/graph_builder.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

constexpr uint64_t kRows = 5;

// Columns of every kind: one, odd, and more than a float adds up without error.
constexpr uint32_t kColumns[] = {1, 7, 33, 1000, 8192};

std::vector<float> Normal(size_t count, double deviation, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal(0.1, deviation);
  std::vector<float> numbers(count);
  for (float& each : numbers) each = static_cast<float>(normal(random));
  return numbers;
}

std::span<const float> RowOf(const std::vector<float>& x, uint64_t row, uint32_t columns) {
  return std::span(x).subspan(row * columns, columns);
}

float Sum(std::span<const float> row) {
  float sum = 0;
  for (const float each : row) sum += each;
  return sum;
}

float MeanSquare(std::span<const float> row) {
  float sum = 0;
  for (const float each : row) sum += each * each;
  return sum / static_cast<float>(row.size());
}

float Largest(std::span<const float> row) { return *std::max_element(row.begin(), row.end()); }

float LargestMagnitude(std::span<const float> row) {
  float largest = 0;
  for (const float each : row) largest = std::max(largest, std::fabs(each));
  return largest;
}

template <typename Function>
void ExpectReductionIsRight(Op op, const Function& function) {
  for (const uint32_t columns : kColumns) {
    GraphBuilder builder;
    const ValueIndex x = builder.Input(Dtype::kF32, Rows::kAll, columns);
    const ProgramGraph graph = builder.Part(builder.Compute(op, {Of(x)}, {}, Dtype::kI8));
    const std::vector<float> data = Normal(kRows * columns, 2, columns);
    const EvaluatedValue expected = EvaluatePart(graph, kRows, {Stored(data)});
    std::vector<float> seen;
    for (uint64_t row = 0; row < kRows; ++row) seen.push_back(function(RowOf(data, row, columns)));
    EXPECT_EQ(CountWrong(expected, Stored(seen)), 0u) << Name(op) << columns;
    for (float& each : seen) each *= 1.01f;
    EXPECT_EQ(CountWrong(expected, Stored(seen)), kRows) << Name(op) << columns;
  }
}

TEST(ProgramEvaluatorRowsTest, ReductionsInFloatLoopsAreRight) {
  ExpectReductionIsRight(Op::kRowSum, Sum);
  ExpectReductionIsRight(Op::kRowMax, Largest);
  ExpectReductionIsRight(Op::kRowMean, [](std::span<const float> row) {
    return Sum(row) / static_cast<float>(row.size());
  });
  ExpectReductionIsRight(Op::kRowMeanSquare, MeanSquare);
  ExpectReductionIsRight(Op::kQuantizeScale,
                         [](std::span<const float> row) { return LargestMagnitude(row) / 127; });
}

TEST(ProgramEvaluatorRowsTest, SumsOfSmallIntegersAreExact) {
  GraphBuilder builder;
  const ValueIndex x = builder.Input(Dtype::kBf16, Rows::kAll, 8192);
  const ProgramGraph graph = builder.Part(builder.Compute(Op::kRowSum, {Of(x)}));
  std::vector<double> data(8192);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<double>(i % 17) - 8;
  const EvaluatedValue expected = EvaluatePart(graph, 1, {BytesOf(Dtype::kBf16, data)});
  EXPECT_EQ(expected.floats[0].bound, 0);
  data[5] += 0x1p-20;
  const EvaluatedValue inexact = EvaluatePart(
      [] {
        GraphBuilder floats;
        const ValueIndex input = floats.Input(Dtype::kF32, Rows::kAll, 8192);
        return floats.Part(floats.Compute(Op::kRowSum, {Of(input)}));
      }(),
      1, {BytesOf(Dtype::kF32, data)});
  EXPECT_GT(inexact.floats[0].bound, 0);
}

TEST(ProgramEvaluatorRowsTest, ANanInARowIsItsMaximum) {
  GraphBuilder builder;
  const ValueIndex x = builder.Input(Dtype::kF32, Rows::kAll, 3);
  const ProgramGraph graph = builder.Part(builder.Compute(Op::kRowMax, {Of(x)}));
  const auto value = EvaluatePart(graph, 2, {Stored<float>({1, NAN, 3, -INFINITY, -2, -3})});
  EXPECT_TRUE(std::isnan(value.floats[0].value));
  EXPECT_EQ(CountWrong(value, Stored<float>({NAN, -2})), 0u);
  EXPECT_EQ(CountWrong(value, Stored<float>({3, -2})), 1u);
}

std::vector<float> RmsNorm(const std::vector<float>& x, const std::vector<float>& gamma,
                           float eps) {
  std::vector<float> y;
  for (uint64_t row = 0; row < kRows; ++row) {
    const auto elements = RowOf(x, row, static_cast<uint32_t>(gamma.size()));
    const float scale = 1 / std::sqrt(MeanSquare(elements) + eps);
    for (size_t i = 0; i < gamma.size(); ++i) y.push_back(elements[i] * scale * gamma[i]);
  }
  return y;
}

std::vector<float> LayerNorm(const std::vector<float>& x, const std::vector<float>& gamma,
                             const std::vector<float>& beta, float eps) {
  std::vector<float> y;
  for (uint64_t row = 0; row < kRows; ++row) {
    const auto elements = RowOf(x, row, static_cast<uint32_t>(gamma.size()));
    const float mean = Sum(elements) / static_cast<float>(gamma.size());
    std::vector<float> centred;
    for (const float each : elements) centred.push_back(each - mean);
    const float scale = 1 / std::sqrt(MeanSquare(centred) + eps);
    for (size_t i = 0; i < gamma.size(); ++i) y.push_back(centred[i] * scale * gamma[i] + beta[i]);
  }
  return y;
}

std::vector<float> Softmax(const std::vector<float>& x, uint32_t columns) {
  std::vector<float> y;
  for (uint64_t row = 0; row < kRows; ++row) {
    const auto elements = RowOf(x, row, columns);
    std::vector<float> powers;
    for (const float each : elements) powers.push_back(std::exp(each - Largest(elements)));
    for (const float each : powers) y.push_back(each / Sum(powers));
  }
  return y;
}

// `seen` is right; 1 % off it is wrong nearly everywhere.
void ExpectRight(const EvaluatedValue& expected, std::vector<float> seen) {
  EXPECT_EQ(CountWrong(expected, Stored(seen)), 0u);
  for (float& each : seen) each *= 1.01f;
  EXPECT_GT(CountWrong(expected, Stored(seen)), seen.size() * 9 / 10);
}

TEST(ProgramEvaluatorRowsTest, NormsInFloatLoopsAreRight) {
  for (const uint32_t columns : {7u, 33u, 1000u, 8192u}) {
    const std::vector<float> data = Normal(kRows * columns, 2, 1);
    const std::vector<float> scale = Normal(columns, 1, 2);
    const std::vector<float> shift = Normal(columns, 1, 3);
    GraphBuilder builder;
    const ValueIndex x = builder.Input(Dtype::kF32, Rows::kAll, columns);
    const ValueIndex gamma = builder.Input(Dtype::kF32, Rows::kOne, columns);
    const ValueIndex beta = builder.Input(Dtype::kF32, Rows::kOne, columns);
    const ValueIndex rms = builder.Compute(Op::kRmsNorm, {Of(x), Of(gamma)}, {1e-3});
    const ValueIndex layer = builder.Compute(Op::kLayerNorm, {Of(x), Of(gamma), Of(beta)}, {1e-3});
    const ValueIndex softmax = builder.Compute(Op::kSoftmax, {Of(x)});
    const ProgramGraph graph = builder.Finish({{rms, -1}, {layer, -1}, {softmax, -1}}, true);
    const auto result =
        *EvaluateProgram(graph, kRows, 1, {{Stored(data), Stored(scale), Stored(shift)}});
    ExpectRight(result[0][0], RmsNorm(data, scale, 1e-3f));
    ExpectRight(result[0][1], LayerNorm(data, scale, shift, 1e-3f));
    ExpectRight(result[0][2], Softmax(data, columns));
  }
}

TEST(ProgramEvaluatorRowsTest, NarrowNormsMayKeepTheirSumsInFloatOrRoundThem) {
  const uint32_t columns = 1000;
  std::vector<float> data = Normal(kRows * columns, 2, 1);
  for (float& each : data) each = F32FromBf16(Bf16FromF32(each));
  const std::vector<float> ones(columns, 1);
  const auto wide = [](const std::vector<float>& x) {
    return std::vector<double>(x.begin(), x.end());
  };
  GraphBuilder builder;
  const ValueIndex x = builder.Input(Dtype::kBf16, Rows::kAll, columns);
  const ValueIndex gamma = builder.Input(Dtype::kBf16, Rows::kOne, columns);
  const ValueIndex stream = builder.Compute(Op::kMul, {Of(x), Literally(1.1)});
  const ProgramGraph graph =
      builder.Part(builder.Compute(Op::kRmsNorm, {Of(stream), Of(gamma)}, {1e-6}));
  const auto expected = EvaluatePart(
      graph, kRows, {BytesOf(Dtype::kBf16, wide(data)), BytesOf(Dtype::kBf16, wide(ones))});
  std::vector<float> late = data;
  for (float& each : late) each *= 1.1f;
  std::vector<float> early = late;
  for (float& each : early) each = F32FromBf16(Bf16FromF32(each));
  const auto late_norm = wide(RmsNorm(late, ones, 1e-6f));
  EXPECT_EQ(CountWrong(expected, BytesOf(Dtype::kBf16, late_norm)), 0u);
  EXPECT_EQ(CountWrong(expected, BytesOf(Dtype::kBf16, wide(RmsNorm(early, ones, 1e-6f)))), 0u);
}

TEST(ProgramEvaluatorRowsTest, TheErrorOfTheLargestElementCancelsInSoftmax) {
  GraphBuilder builder;
  const ValueIndex x = builder.Input(Dtype::kBf16, Rows::kAll, 3);
  const ValueIndex scaled = builder.Compute(Op::kMul, {Of(x), Literally(1.1)});
  const ValueIndex wide = builder.Compute(Op::kCast, {Of(scaled)}, {}, Dtype::kF32);
  const ProgramGraph graph = builder.Part(builder.Compute(Op::kSoftmax, {Of(wide)}));
  const auto value = EvaluatePart(graph, 1, {BytesOf(Dtype::kBf16, {5, 4, 3})});
  // Half an ulp of 5.5 is 2^-6: of the element, and of the sum.
  for (const Bounded& each : value.floats) EXPECT_LT(each.bound, each.value * 0x2.2p-6);
}

TEST(ProgramEvaluatorRowsTest, QuantizedRowsInFloatLoopsAreRight) {
  const uint32_t columns = 1000;
  const std::vector<float> data = Normal(kRows * columns, 2, 1);
  for (const Dtype to : {Dtype::kI8, Dtype::kF8E4M3, Dtype::kF8E5M2}) {
    const float largest = to == Dtype::kI8 ? 127 : to == Dtype::kF8E4M3 ? 448 : 57344;
    GraphBuilder builder;
    const ValueIndex x = builder.Input(Dtype::kF32, Rows::kAll, columns);
    const ValueIndex scale = builder.Compute(Op::kQuantizeScale, {Of(x)}, {}, to);
    const ProgramGraph graph =
        builder.Part(builder.Compute(Op::kQuantize, {Of(x), Of(scale)}, {}, to));
    const EvaluatedValue expected = EvaluatePart(graph, kRows, {Stored(data)});
    std::vector<uint8_t> seen;
    for (uint64_t row = 0; row < kRows; ++row) {
      const auto elements = RowOf(data, row, columns);
      const float row_scale = LargestMagnitude(elements) / largest;
      for (const float each : elements) {
        const float ratio = each / row_scale;
        seen.push_back(to == Dtype::kI8       ? static_cast<uint8_t>(static_cast<int8_t>(
                                              std::clamp(std::nearbyint(ratio), -127.0f, 127.0f)))
                       : to == Dtype::kF8E4M3 ? F8E4M3FromF32(std::clamp(ratio, -448.0f, 448.0f))
                                              : F8E5M2FromF32(ratio));
      }
    }
    EXPECT_EQ(CountWrong(expected, Stored(seen)), 0u) << Name(to);
    for (uint8_t& each : seen) ++each;
    EXPECT_GT(CountWrong(expected, Stored(seen)), seen.size() * 95 / 100) << Name(to);
  }
}

// The largest number of a row becomes the largest of the dtype, which rounding does not leave.
TEST(ProgramEvaluatorRowsTest, TheLargestOfAQuantizedRowIsKnown) {
  for (const Dtype to : {Dtype::kF8E4M3, Dtype::kF8E5M2}) {
    GraphBuilder builder;
    const ValueIndex x = builder.Input(Dtype::kF32, Rows::kAll, 2);
    const ValueIndex scale = builder.Compute(Op::kQuantizeScale, {Of(x)}, {}, to);
    const ValueIndex small = builder.Compute(Op::kQuantize, {Of(x), Of(scale)}, {}, to);
    const ValueIndex wide = builder.Compute(Op::kCast, {Of(small)}, {}, Dtype::kF32);
    const ProgramGraph graph = builder.Finish({{small, -1}, {wide, -1}}, true);
    const std::vector<std::byte> row = Stored<float>({0.1f, -0.7f});
    const auto values = EvaluateProgram(graph, 1, 1, {{row}}).value().at(0);
    const double largest = LargestOf(to);
    EXPECT_EQ(CountWrong(values[0], BytesOf(to, {0.1 / 0.7 * largest, -largest})), 0u) << Name(to);
    // NaN of f8_e4m3, infinity of f8_e5m2.
    const uint8_t beyond = to == Dtype::kF8E4M3 ? 0xFF : 0xFC;
    std::vector<std::byte> wrong = Encode(values[0]);
    wrong[1] = static_cast<std::byte>(beyond);
    EXPECT_EQ(CountWrong(values[0], wrong), 1u) << Name(to);
    EXPECT_EQ(CountWrong(values[1], Stored<float>({0, -INFINITY})), 2u) << Name(to);
    EXPECT_LT(values[1].floats[1].bound, largest / 1000) << Name(to);
  }
}

TEST(ProgramEvaluatorRowsTest, ARowOfZerosIsQuantizedToZeros) {
  GraphBuilder builder;
  const ValueIndex x = builder.Input(Dtype::kF32, Rows::kAll, 2);
  const ValueIndex scale = builder.Compute(Op::kQuantizeScale, {Of(x)}, {}, Dtype::kF8E4M3);
  const ProgramGraph graph =
      builder.Part(builder.Compute(Op::kQuantize, {Of(x), Of(scale)}, {}, Dtype::kF8E4M3));
  const auto value = EvaluatePart(graph, 1, {Stored<float>({0, 0})});
  EXPECT_EQ(CountWrong(value, Stored<uint8_t>({0, 0})), 0u);
  EXPECT_EQ(CountWrong(value, Stored<uint8_t>({0x7F, 0x7F})), 2u);
}

TEST(ProgramEvaluatorRowsTest, QuantizingClampsAndRoundsTiesToEven) {
  GraphBuilder builder;
  const ValueIndex x = builder.Input(Dtype::kF32, Rows::kAll, 6);
  const ValueIndex one = builder.Input(Dtype::kF32, Rows::kOne, 1);
  const ProgramGraph graph =
      builder.Part(builder.Compute(Op::kQuantize, {Of(x), Of(one)}, {}, Dtype::kI8));
  const auto value = EvaluatePart(
      graph, 1, {Stored<float>({0, 3.4f, -3.6f, 1000, -1000, NAN}), Stored<float>({1})});
  EXPECT_EQ(value.integers, (std::vector<int64_t>{0, 3, -4, 127, -127, 0}));
}

}  // namespace
}  // namespace cotune
