#include "core/problem/program_evaluator.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "core/base/float16.h"
#include "core/base/float8.h"
#include "core/testing/graph_builder.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using Bytes = std::vector<std::byte>;
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// A number as the dtype has it, by the conversions of core/base.
float Narrowed(Dtype dtype, float value) {
  switch (dtype) {
    case Dtype::kF16:
      return F32FromF16(F16FromF32(value));
    case Dtype::kBf16:
      return F32FromBf16(Bf16FromF32(value));
    case Dtype::kF8E4M3:
      return F32FromF8E4M3(F8E4M3FromF32(value));
    case Dtype::kF8E5M2:
      return F32FromF8E5M2(F8E5M2FromF32(value));
    default:
      return value;
  }
}

template <typename T>
struct NaiveOp {
  Op op;
  T (*function)(T a, T b);
};

template <typename T>
T NanOr(T a, T b, T value) {
  return std::isnan(a) || std::isnan(b) ? std::numeric_limits<T>::quiet_NaN() : value;
}

// Operations as one would write them in T.
template <typename T>
std::vector<NaiveOp<T>> NaiveOps() {
  return {
      {Op::kAdd, [](T a, T b) { return a + b; }},
      {Op::kSub, [](T a, T b) { return a - b; }},
      {Op::kMul, [](T a, T b) { return a * b; }},
      {Op::kDiv, [](T a, T b) { return a / b; }},
      {Op::kMin, [](T a, T b) { return NanOr(a, b, b < a ? b : a); }},
      {Op::kMax, [](T a, T b) { return NanOr(a, b, a < b ? b : a); }},
      {Op::kNeg, [](T a, T) { return -a; }},
      {Op::kAbs, [](T a, T) { return std::fabs(a); }},
      {Op::kRelu, [](T a, T) { return NanOr(a, a, a > 0 ? a : T{0}); }},
      {Op::kGeluErf, [](T a, T) { return T(0.5) * a * (1 + std::erf(a * T(0.7071067811865476))); }},
      {Op::kGeluTanh,
       [](T a, T) {
         const T inner = T(0.7978845608028654) * (a + T(0.044715) * a * a * a);
         return T(0.5) * a * (1 + std::tanh(inner));
       }},
      {Op::kSilu, [](T a, T) { return a / (1 + std::exp(-a)); }},
      {Op::kTanh, [](T a, T) { return std::tanh(a); }},
      {Op::kSigmoid, [](T a, T) { return 1 / (1 + std::exp(-a)); }},
      {Op::kExp, [](T a, T) { return std::exp(a); }},
      {Op::kLog, [](T a, T) { return std::log(a); }},
      {Op::kSqrt, [](T a, T) { return std::sqrt(a); }},
      {Op::kRsqrt, [](T a, T) { return 1 / std::sqrt(a); }},
      {Op::kRound, [](T a, T) { return std::nearbyint(a); }},
      {Op::kClamp, [](T a, T) { return NanOr(a, a, std::min(std::max(a, T(-1.5)), T(2.25))); }},
  };
}

// Pairs of usual numbers, and all pairs of special ones.
template <typename T>
void Pairs(double largest, std::vector<T>& a, std::vector<T>& b) {
  std::mt19937_64 random(7);
  std::normal_distribution<double> usual(0, 3);
  for (int i = 0; i < 2000; ++i) {
    a.push_back(static_cast<T>(usual(random)));
    b.push_back(static_cast<T>(usual(random)));
  }
  const std::vector<double> special = {0,    -0.0,    1,        -1,      0.5,      kInf, -kInf,
                                       kNan, 1e-30,   -1e-30,   largest, -largest, 100,  -100,
                                       1e-4, -0.7518, -1.27846, 2.5,     -89};
  for (const double x : special) {
    for (const double y : special) {
      a.push_back(static_cast<T>(x));
      b.push_back(static_cast<T>(y));
    }
  }
}

ProgramGraph Elementwise(Op op, Dtype dtype) {
  GraphBuilder builder;
  std::vector<Operand> operands = {Of(builder.Input(dtype, Rows::kAll, 1))};
  if (TraitsOf(op).operands == 2) operands.push_back(Of(builder.Input(dtype, Rows::kAll, 1)));
  return builder.Part(builder.Compute(op, operands, {-1.5, 2.25}));
}

// Every bound but of the special values is below `ulps` of 2^-precision.
void ExpectTightBounds(const EvaluatedValue& value, double relative, double magnitude) {
  for (size_t i = 0; i < 2000; ++i) {
    const Bounded& each = value.floats[i];
    if (std::isnan(each.value)) continue;
    EXPECT_LE(each.bound, relative * std::max(std::fabs(each.value), magnitude)) << each.value;
  }
}

template <typename T>
void ExpectNaiveOpsAreRight(Dtype dtype, double relative) {
  std::vector<T> a;
  std::vector<T> b;
  Pairs<T>(std::numeric_limits<T>::max(), a, b);
  for (const NaiveOp<T>& naive : NaiveOps<T>()) {
    const ProgramGraph graph = Elementwise(naive.op, dtype);
    std::vector<Bytes> inputs = {Stored(a)};
    if (graph.inputs().size() == 2) inputs.push_back(Stored(b));
    const EvaluatedValue expected = EvaluatePart(graph, a.size(), inputs);
    std::vector<T> seen;
    std::vector<T> off;
    for (size_t i = 0; i < a.size(); ++i) {
      seen.push_back(naive.function(a[i], b[i]));
      off.push_back(seen.back() + static_cast<T>(1e3 * relative) + seen.back() * T(1e3 * relative));
    }
    EXPECT_EQ(CountWrong(expected, Stored(seen)), 0u) << Name(naive.op);
    EXPECT_GT(CountWrong(expected, Stored(off)), 600u) << Name(naive.op);
    ExpectTightBounds(expected, relative, 10);
  }
}

TEST(ProgramEvaluatorTest, FloatLoopsAreRightAndFarOffOnesAreNot) {
  ExpectNaiveOpsAreRight<float>(Dtype::kF32, 0x1p-20);
}

TEST(ProgramEvaluatorTest, DoubleLoopsAreRightAndFarOffOnesAreNot) {
  ExpectNaiveOpsAreRight<double>(Dtype::kF64, 0x1p-48);
}

TEST(ProgramEvaluatorTest, NarrowFloatsMayBeRoundedAtEachNodeOrOnlyAtTheEnd) {
  for (const Dtype dtype : {Dtype::kF16, Dtype::kBf16}) {
    std::vector<float> a;
    std::vector<float> b;
    Pairs<float>(dtype == Dtype::kF16 ? 65504 : 0x1.fep127, a, b);
    std::vector<double> wide_a(a.begin(), a.end());
    std::vector<double> wide_b(b.begin(), b.end());
    for (const NaiveOp<float>& naive : NaiveOps<float>()) {
      GraphBuilder builder;
      const ValueIndex x = builder.Input(dtype, Rows::kAll, 1);
      const ValueIndex y = builder.Input(dtype, Rows::kAll, 1);
      std::vector<Operand> operands = {Of(builder.Compute(Op::kMul, {Of(x), Of(y)}))};
      if (TraitsOf(naive.op).operands == 2) operands.push_back(Of(y));
      const ValueIndex result = builder.Compute(naive.op, operands, {-1.5, 2.25});
      const EvaluatedValue expected = EvaluatePart(
          builder.Part(result), a.size(), {BytesOf(dtype, wide_a), BytesOf(dtype, wide_b)});
      std::vector<double> early;
      std::vector<double> late;
      for (size_t i = 0; i < a.size(); ++i) {
        const float left = Narrowed(dtype, a[i]);
        const float right = Narrowed(dtype, b[i]);
        early.push_back(naive.function(Narrowed(dtype, left * right), right));
        late.push_back(naive.function(left * right, right));
      }
      EXPECT_EQ(CountWrong(expected, BytesOf(dtype, early)), 0u) << Name(naive.op);
      EXPECT_EQ(CountWrong(expected, BytesOf(dtype, late)), 0u) << Name(naive.op);
    }
  }
}

// A node that reads an output, or the operand of a collective, reads the number in memory.
TEST(ProgramEvaluatorTest, NarrowFloatsThatLieInMemoryAreRoundedForTheNodesThatReadThem) {
  for (const Dtype dtype : {Dtype::kF16, Dtype::kBf16}) {
    std::vector<float> a;
    std::vector<float> b;
    Pairs<float>(1000, a, b);
    for (const bool is_output : {true, false}) {
      GraphBuilder builder;
      const ValueIndex x = builder.Input(dtype, Rows::kAll, 1);
      const ValueIndex y = builder.Input(dtype, Rows::kAll, 1);
      const ValueIndex sum = builder.Compute(Op::kAdd, {Of(x), Of(y)});
      const ValueIndex wide = builder.Compute(Op::kCast, {Of(sum)}, {}, Dtype::kF32);
      const ValueIndex other =
          is_output ? sum : builder.Collect(Collective::kAllReduce, sum, Reduction::kSum);
      const ProgramGraph graph = builder.Finish({{wide, -1}, {other, -1}}, is_output);
      const EvaluatedValue expected =
          EvaluateProgram(
              graph, a.size(), 1,
              {{BytesOf(dtype, {a.begin(), a.end()}), BytesOf(dtype, {b.begin(), b.end()})}})
              .value()[0][0];
      std::vector<float> rounded;
      std::vector<float> unrounded;
      for (size_t i = 0; i < a.size(); ++i) {
        unrounded.push_back(Narrowed(dtype, a[i]) + Narrowed(dtype, b[i]));
        rounded.push_back(Narrowed(dtype, unrounded[i]));
      }
      EXPECT_EQ(CountWrong(expected, Stored(rounded)), 0u) << Name(dtype);
      EXPECT_GT(CountWrong(expected, Stored(unrounded)), a.size() / 4) << Name(dtype);
    }
  }
}

template <typename T>
void ExpectIntegersWrapAround(Dtype dtype) {
  using Unsigned = std::make_unsigned_t<T>;
  const T low = std::numeric_limits<T>::min();
  const T high = std::numeric_limits<T>::max();
  std::vector<T> a;
  std::vector<T> b;
  for (const T x : {low, T(low + 1), T(-1), T(0), T(1), T(3), T(100), T(high - 1), high}) {
    for (const T y : {low, T(-1), T(0), T(2), T(7), T(77), high}) {
      a.push_back(x);
      b.push_back(y);
    }
  }
  const auto expect = [&](Op op, auto function) {
    const ProgramGraph graph = [&] {
      GraphBuilder builder;
      std::vector<Operand> operands = {Of(builder.Input(dtype, Rows::kAll, 1))};
      if (TraitsOf(op).operands == 2) operands.push_back(Of(builder.Input(dtype, Rows::kAll, 1)));
      return builder.Part(builder.Compute(op, operands, {2, 50}));
    }();
    std::vector<Bytes> inputs = {Stored(a)};
    if (graph.inputs().size() == 2) inputs.push_back(Stored(b));
    using Seen = decltype(function(a[0], b[0]));
    std::vector<Seen> seen;
    for (size_t i = 0; i < a.size(); ++i) seen.push_back(function(a[i], b[i]));
    const EvaluatedValue expected = EvaluatePart(graph, a.size(), inputs);
    EXPECT_EQ(CountWrong(expected, Stored(seen)), 0u) << Name(op);
    for (Seen& each : seen) each = static_cast<Seen>(Unsigned(each) ^ 1u);
    EXPECT_EQ(CountWrong(expected, Stored(seen)), seen.size()) << Name(op);
  };
  const auto wrapped = [](uint64_t value) { return static_cast<T>(static_cast<Unsigned>(value)); };
  const auto wide = [](T value) { return static_cast<uint64_t>(static_cast<int64_t>(value)); };
  expect(Op::kAdd, [=](T x, T y) { return wrapped(wide(x) + wide(y)); });
  expect(Op::kSub, [=](T x, T y) { return wrapped(wide(x) - wide(y)); });
  expect(Op::kMul, [=](T x, T y) { return wrapped(wide(x) * wide(y)); });
  expect(Op::kMin, [](T x, T y) { return std::min(x, y); });
  expect(Op::kMax, [](T x, T y) { return std::max(x, y); });
  expect(Op::kNeg, [=](T x, T) { return wrapped(-wide(x)); });
  expect(Op::kAbs, [=](T x, T) { return x < 0 ? wrapped(-wide(x)) : x; });
  expect(Op::kRelu, [](T x, T) { return std::max(x, T(0)); });
  expect(Op::kClamp, [](T x, T) { return std::clamp(x, T(2), T(50)); });
  expect(Op::kLess, [](T x, T y) { return static_cast<uint8_t>(x < y); });
  expect(Op::kEqual, [](T x, T y) { return static_cast<uint8_t>(x == y); });
}

TEST(ProgramEvaluatorTest, IntegersAreExactAndWrapAround) {
  ExpectIntegersWrapAround<uint8_t>(Dtype::kU8);
  ExpectIntegersWrapAround<int32_t>(Dtype::kI32);
  ExpectIntegersWrapAround<int64_t>(Dtype::kI64);
}

ProgramGraph CastPart(Dtype from, Dtype to) {
  GraphBuilder builder;
  const ValueIndex x = builder.Input(from, Rows::kAll, 1);
  return builder.Part(builder.Compute(Op::kCast, {Of(x)}, {}, to));
}

TEST(ProgramEvaluatorTest, CastsOfFloatsToIntegersClampAndTakeNanForZero) {
  const std::vector<float> x = {0,
                                0.9f,
                                -0.9f,
                                1.5f,
                                -1.5f,
                                127.9f,
                                128,
                                -128.5f,
                                1e10f,
                                -1e10f,
                                static_cast<float>(kInf),
                                static_cast<float>(-kInf),
                                static_cast<float>(kNan),
                                1e20f,
                                -1e20f};
  const auto i8 = EvaluatePart(CastPart(Dtype::kF32, Dtype::kI8), x.size(), {Stored(x)});
  EXPECT_EQ(i8.integers, (std::vector<int64_t>{0, 0, 0, 1, -1, 127, 127, -128, 127, -128, 127, -128,
                                               0, 127, -128}));
  EXPECT_TRUE(i8.integer_bounds.empty());
  const auto u8 = EvaluatePart(CastPart(Dtype::kF32, Dtype::kU8), x.size(), {Stored(x)});
  EXPECT_EQ(u8.integers,
            (std::vector<int64_t>{0, 0, 0, 1, 0, 127, 128, 0, 255, 0, 255, 0, 0, 255, 0}));
  const auto i64 = EvaluatePart(CastPart(Dtype::kF32, Dtype::kI64), x.size(), {Stored(x)});
  EXPECT_EQ(i64.integers[8], 10000000000);
  EXPECT_EQ(i64.integers[13], std::numeric_limits<int64_t>::max());
  EXPECT_EQ(i64.integers[14], std::numeric_limits<int64_t>::min());
}

TEST(ProgramEvaluatorTest, CastsOfIntegersWrapAroundAndRoundToFloats) {
  const std::vector<int32_t> x = {0, 1, -1, 127, 128, 300, -300, 16777217, 2147483647};
  const auto i8 = EvaluatePart(CastPart(Dtype::kI32, Dtype::kI8), x.size(), {Stored(x)});
  const auto f32 = EvaluatePart(CastPart(Dtype::kI32, Dtype::kF32), x.size(), {Stored(x)});
  const auto bf16 = EvaluatePart(CastPart(Dtype::kI32, Dtype::kBf16), x.size(), {Stored(x)});
  std::vector<float> floats;
  std::vector<uint16_t> halves;
  for (size_t i = 0; i < x.size(); ++i) {
    EXPECT_EQ(i8.integers[i], static_cast<int8_t>(x[i]));
    floats.push_back(static_cast<float>(x[i]));
    halves.push_back(Bf16FromF32(floats.back()));
  }
  EXPECT_EQ(CountWrong(f32, Stored(floats)), 0u);
  EXPECT_EQ(f32.floats[6].bound, 0);
  EXPECT_EQ(CountWrong(bf16, Stored(halves)), 0u);
  EXPECT_EQ(Encode(bf16), Stored(halves));
}

TEST(ProgramEvaluatorTest, CastsToNarrowFloatsRoundToTheNearest) {
  std::vector<float> a;
  std::vector<float> unused;
  Pairs<float>(1e6, a, unused);
  for (const Dtype to : {Dtype::kF16, Dtype::kBf16, Dtype::kF8E4M3, Dtype::kF8E5M2}) {
    const auto value = EvaluatePart(CastPart(Dtype::kF32, to), a.size(), {Stored(a)});
    std::vector<double> expected;
    for (const float each : a) expected.push_back(Narrowed(to, each));
    EXPECT_EQ(CountWrong(value, BytesOf(to, expected)), 0u) << Name(to);
  }
}

TEST(ProgramEvaluatorTest, WhereAndComparisonsTakeEitherWithinTheBounds) {
  GraphBuilder builder;
  const ValueIndex x = builder.Input(Dtype::kF32, Rows::kAll, 1);
  const ValueIndex root = builder.Compute(Op::kSqrt, {Of(x)});
  const ValueIndex less = builder.Compute(Op::kLess, {Of(root), Literally(2)});
  const ValueIndex picked = builder.Compute(Op::kWhere, {Of(less), Literally(10), Of(root)});
  const ProgramGraph graph = builder.Finish({{less, -1}, {picked, -1}}, true);
  const auto result = *EvaluateProgram(graph, 4, 1, {{Stored<float>({1, 4, 9, NAN})}});
  const EvaluatedValue& truth = result[0][0];
  EXPECT_EQ(CountWrong(truth, Stored<uint8_t>({1, 0, 0, 0})), 0u);
  EXPECT_EQ(CountWrong(truth, Stored<uint8_t>({1, 1, 0, 0})), 0u);
  EXPECT_EQ(CountWrong(truth, Stored<uint8_t>({0, 1, 1, 1})), 3u);
  const EvaluatedValue& either = result[0][1];
  EXPECT_EQ(CountWrong(either, Stored<float>({10, 2, 3, NAN})), 0u);
  EXPECT_EQ(CountWrong(either, Stored<float>({10, 10, 3, NAN})), 0u);
  EXPECT_EQ(CountWrong(either, Stored<float>({1, 10, 10, 10})), 3u);
}

TEST(ProgramEvaluatorTest, AnIntegerThatMayWrapAroundMayBeAnything) {
  GraphBuilder builder;
  const ValueIndex x = builder.Input(Dtype::kF32, Rows::kAll, 1);
  const ValueIndex root = builder.Compute(Op::kSqrt, {Of(x)});
  const ValueIndex u8 = builder.Compute(Op::kCast, {Of(root)}, {}, Dtype::kU8);
  const ValueIndex sum = builder.Compute(Op::kAdd, {Of(u8), Literally(191)});
  const ProgramGraph graph = builder.Finish({{u8, -1}, {sum, -1}}, true);
  const auto result = *EvaluateProgram(graph, 3, 1, {{Stored<float>({65 * 65, 81, 90})}});
  EXPECT_EQ(CountWrong(result[0][0], Stored<uint8_t>({64, 8, 9})), 0u);
  EXPECT_EQ(CountWrong(result[0][0], Stored<uint8_t>({65, 9, 9})), 0u);
  EXPECT_EQ(CountWrong(result[0][0], Stored<uint8_t>({67, 11, 8})), 3u);
  // 65 + 191 wraps around, 64 + 191 does not.
  EXPECT_EQ(CountWrong(result[0][1], Stored<uint8_t>({0, 200, 200})), 0u);
  EXPECT_EQ(CountWrong(result[0][1], Stored<uint8_t>({255, 199, 200})), 0u);
  EXPECT_EQ(CountWrong(result[0][1], Stored<uint8_t>({255, 202, 201})), 2u);
}

TEST(ProgramEvaluatorTest, OperandsOfOneRowOrColumnAreRepeated) {
  GraphBuilder builder;
  const ValueIndex x = builder.Input(Dtype::kF32, Rows::kAll, 3);
  const ValueIndex row = builder.Input(Dtype::kF32, Rows::kOne, 3);
  const ValueIndex column = builder.Input(Dtype::kF32, Rows::kAll, 1);
  const ValueIndex single = builder.Input(Dtype::kF32, Rows::kOne, 1);
  const ValueIndex a = builder.Compute(Op::kAdd, {Of(row), Of(x)});
  const ValueIndex b = builder.Compute(Op::kAdd, {Of(a), Of(column)});
  const ValueIndex c = builder.Compute(Op::kMul, {Of(b), Of(single)});
  const ProgramGraph graph = builder.Part(builder.Compute(Op::kSub, {Literally(1), Of(c)}));
  const auto value = EvaluatePart(graph, 2,
                                  {Stored<float>({1, 2, 3, 4, 5, 6}), Stored<float>({10, 20, 30}),
                                   Stored<float>({100, 200}), Stored<float>({2})});
  EXPECT_EQ(CountWrong(value, Stored<float>({-221, -243, -265, -427, -449, -471})), 0u);
  for (const uint64_t rows : {0u, 1u}) {
    const std::vector<float> flat(rows * 3, 1);
    const auto few = EvaluatePart(graph, rows,
                                  {Stored(flat), Stored<float>({10, 20, 30}),
                                   Stored(std::vector<float>(rows, 100)), Stored<float>({2})});
    EXPECT_EQ(few.rows, rows);
    EXPECT_EQ(few.floats.size(), rows * 3);
  }
}

TEST(ProgramEvaluatorTest, ZerosOfEitherSignAreRight) {
  const ProgramGraph graph = Elementwise(Op::kMul, Dtype::kF32);
  const auto value = EvaluatePart(graph, 1, {Stored<float>({-0.0f}), Stored<float>({5})});
  EXPECT_EQ(CountWrong(value, Stored<float>({0.0f})), 0u);
  EXPECT_EQ(CountWrong(value, Stored<float>({-0.0f})), 0u);
  EXPECT_EQ(CountWrong(value, Stored<float>({1e-40f})), 1u);
}

TEST(ProgramEvaluatorTest, AnOverflowedNarrowFloatIsInfiniteInMemoryAndAnythingInBetween) {
  for (const bool is_output : {true, false}) {
    GraphBuilder builder;
    const ValueIndex x = builder.Input(Dtype::kF16, Rows::kAll, 1);
    const ValueIndex large = builder.Compute(Op::kMul, {Of(x), Of(x)});
    const ValueIndex small = builder.Compute(Op::kMul, {Of(large), Literally(0x1p-10)});
    std::vector<ProgramOutput> outputs = {{small, -1}};
    if (is_output) outputs.push_back({large, -1});
    const ProgramGraph graph = builder.Finish(outputs, true);
    const auto result = *EvaluateProgram(graph, 1, 1, {{BytesOf(Dtype::kF16, {1024})}});
    EXPECT_EQ(CountWrong(result[0][0], BytesOf(Dtype::kF16, {1024})), is_output ? 1u : 0u);
    EXPECT_EQ(CountWrong(result[0][0], BytesOf(Dtype::kF16, {kInf})), 0u);
    if (!is_output) continue;
    EXPECT_EQ(CountWrong(result[0][1], BytesOf(Dtype::kF16, {kInf})), 0u);
    EXPECT_EQ(CountWrong(result[0][1], BytesOf(Dtype::kF16, {65504})), 1u);
    EXPECT_EQ(CountWrong(result[0][1], BytesOf(Dtype::kF16, {-kInf})), 1u);
  }
}

// f8_e4m3 has no infinity, so that what was one is NaN where values are rounded.
TEST(ProgramEvaluatorTest, AnInfinityInAFloatWithoutOneIsNanInMemoryAndAnythingInBetween) {
  for (const bool is_output : {true, false}) {
    GraphBuilder builder;
    const ValueIndex x = builder.Input(Dtype::kF32, Rows::kAll, 1);
    const ValueIndex small = builder.Compute(Op::kCast, {Of(x)}, {}, Dtype::kF8E4M3);
    const ValueIndex wide = builder.Compute(Op::kCast, {Of(small)}, {}, Dtype::kF32);
    std::vector<ProgramOutput> outputs = {{wide, -1}};
    if (is_output) outputs.push_back({small, -1});
    const ProgramGraph graph = builder.Finish(outputs, true);
    const auto result = *EvaluateProgram(graph, 1, 1, {{BytesOf(Dtype::kF32, {kInf})}});
    EXPECT_EQ(CountWrong(result[0][0], BytesOf(Dtype::kF32, {kNan})), 0u);
    EXPECT_EQ(CountWrong(result[0][0], BytesOf(Dtype::kF32, {kInf})), is_output ? 1u : 0u);
    if (!is_output) continue;
    EXPECT_EQ(CountWrong(result[0][1], BytesOf(Dtype::kF8E4M3, {kNan})), 0u);
    EXPECT_EQ(CountWrong(result[0][1], BytesOf(Dtype::kF8E4M3, {448})), 1u);
  }
}

// The sum may be anything between -500 and 500, of which f8_e4m3 has the numbers up to 448.
TEST(ProgramEvaluatorTest, AnUncertainValueWithBothEndsBeyondTheRangeIsAnythingForReaders) {
  GraphBuilder builder;
  const ValueIndex x = builder.Input(Dtype::kF32, Rows::kAll, 2);
  const ValueIndex sum = builder.Compute(Op::kRowSum, {Of(x)});
  const ValueIndex small = builder.Compute(Op::kCast, {Of(sum)}, {}, Dtype::kF8E4M3);
  const ValueIndex wide = builder.Compute(Op::kCast, {Of(small)}, {}, Dtype::kF32);
  const ProgramGraph graph = builder.Finish({{small, -1}, {wide, -1}}, true);
  // Adding these in f32 has an error of some hundreds.
  const auto result = *EvaluateProgram(graph, 1, 1, {{BytesOf(Dtype::kF32, {5e9F, -5e9F})}});
  EXPECT_EQ(CountWrong(result[0][1], BytesOf(Dtype::kF32, {0})), 0u);
}

TEST(ProgramEvaluatorTest, SeenBytesOfAnotherLengthAreWrong) {
  const auto value =
      EvaluatePart(Elementwise(Op::kNeg, Dtype::kF32), 3, {Stored<float>({1, 2, 3})});
  EXPECT_EQ(CountWrong(value, Stored<float>({1, 2})), 3u);
}

TEST(ProgramEvaluatorTest, InputsThatDoNotFitAreRefused) {
  const ProgramGraph graph = Elementwise(Op::kAdd, Dtype::kF32);
  const Bytes two = Stored<float>({1, 2});
  EXPECT_FALSE(EvaluateProgram(graph, 2, 0, {}).has_value());
  EXPECT_FALSE(EvaluateProgram(graph, 2, 2, {{two, two}}).has_value());
  EXPECT_FALSE(EvaluateProgram(graph, 2, 1, {{two}}).has_value());
  EXPECT_FALSE(EvaluateProgram(graph, 3, 1, {{two, two}}).has_value());
  EXPECT_TRUE(EvaluateProgram(graph, 2, 1, {{two, two}}).has_value());
}

}  // namespace
}  // namespace cotune
