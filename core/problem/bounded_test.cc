#include "core/problem/bounded.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace cotune {
namespace {

const Arithmetic& kF32 = ArithmeticOf(Dtype::kF32);

struct UnaryCase {
  const char* name;
  Bounded (*bounded)(Bounded a, const Arithmetic& arithmetic);
  double (*plain)(double x);
};

std::vector<UnaryCase> UnaryCases() {
  return {
      {"sqrt", Sqrt, [](double x) { return std::sqrt(x); }},
      {"rsqrt", Rsqrt, [](double x) { return 1 / std::sqrt(x); }},
      {"exp", Exp, [](double x) { return std::exp(x); }},
      {"log", Log, [](double x) { return std::log(x); }},
      {"tanh", Tanh, [](double x) { return std::tanh(x); }},
      {"sigmoid", Sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"silu", Silu, [](double x) { return x / (1 + std::exp(-x)); }},
      {"gelu", GeluErf, [](double x) { return 0.5 * x * std::erfc(-x / std::sqrt(2.0)); }},
      {"gelu_tanh", GeluTanh,
       [](double x) {
         return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
       }},
      {"abs", [](Bounded a, const Arithmetic&) { return Abs(a); },
       [](double x) { return std::fabs(x); }},
      {"round", [](Bounded a, const Arithmetic&) { return RoundToInteger(a); },
       [](double x) { return std::nearbyint(x); }},
  };
}

struct BinaryCase {
  const char* name;
  Bounded (*bounded)(Bounded a, Bounded b, const Arithmetic& arithmetic);
  double (*plain)(double x, double y);
};

std::vector<BinaryCase> BinaryCases() {
  return {
      {"add", Add, [](double x, double y) { return x + y; }},
      {"sub", Sub, [](double x, double y) { return x - y; }},
      {"mul", Mul, [](double x, double y) { return x * y; }},
      {"div", Div, [](double x, double y) { return x / y; }},
      {"min", Min, [](double x, double y) { return std::min(x, y); }},
      {"max", Max, [](double x, double y) { return std::max(x, y); }},
  };
}

// Intervals of all widths, and points in them with both ends.
class Intervals {
 public:
  Bounded Next() { return {4 * uniform_(random_), std::pow(10, 3.5 * uniform_(random_) - 3)}; }
  std::vector<double> Points(Bounded in) {
    std::vector<double> points = {in.value - in.bound, in.value + in.bound};
    for (int i = 0; i < 30; ++i) points.push_back(in.value + in.bound * uniform_(random_));
    return points;
  }

 private:
  std::mt19937_64 random_{11};
  std::uniform_real_distribution<double> uniform_{-1, 1};
};

TEST(BoundedTest, FunctionsOfAllPointsOfAnIntervalAreWithinTheBound) {
  Intervals intervals;
  for (const UnaryCase& each : UnaryCases()) {
    for (int i = 0; i < 3000; ++i) {
      const Bounded x = intervals.Next();
      const Bounded y = each.bounded(x, kF32);
      double furthest = 0;
      for (const double point : intervals.Points(x)) {
        const double seen = each.plain(point);
        if (std::isnan(y.value) || y.bound == kInfinity) continue;
        furthest = std::max(furthest, std::fabs(seen - y.value));
        ASSERT_LE(std::fabs(seen - y.value), y.bound + 1e-14) << each.name << x.value << x.bound;
      }
      if (y.bound == kInfinity || std::isnan(y.value) || each.name[0] == 'a') continue;
      // Not much wider either: at most the dip of a function lies between the points.
      EXPECT_LE(y.bound, 1.1 * furthest + 1e-6 * (10 + std::fabs(y.value)))
          << each.name << x.value << " " << x.bound;
    }
  }
}

TEST(BoundedTest, OperationsOnAllPointsOfTwoIntervalsAreWithinTheBound) {
  Intervals intervals;
  for (const BinaryCase& each : BinaryCases()) {
    for (int i = 0; i < 1000; ++i) {
      const Bounded x = intervals.Next();
      const Bounded y = intervals.Next();
      const Bounded z = each.bounded(x, y, kF32);
      if (z.bound == kInfinity) continue;
      for (const double a : intervals.Points(x)) {
        for (const double b : intervals.Points(y)) {
          ASSERT_LE(std::fabs(each.plain(a, b) - z.value), z.bound + 1e-13) << each.name;
        }
      }
    }
  }
}

TEST(BoundedTest, ExactOperandsWithAnExactResultHaveNoBound) {
  EXPECT_EQ(Add({3, 0}, {0.25, 0}, kF32).bound, 0);
  EXPECT_EQ(Mul({3, 0}, {0.25, 0}, kF32).bound, 0);
  EXPECT_GT(Add({1, 0}, {0x1p-24, 0}, kF32).bound, 0);
  EXPECT_GT(Mul({1 + 0x1p-20, 0}, {1 + 0x1p-20, 0}, kF32).bound, 0);
  const Arithmetic& f64 = ArithmeticOf(Dtype::kF64);
  EXPECT_EQ(Add({3, 0}, {0.25, 0}, f64).bound, 0);
  EXPECT_GT(Add({1, 0}, {0x1p-60, 0}, f64).bound, 0);
  EXPECT_EQ(Mul({3, 0}, {0.25, 0}, f64).bound, 0);
  EXPECT_GT(Mul({0.1, 0}, {0.1, 0}, f64).bound, 0);
}

TEST(BoundedTest, ADivisionByZeroIsEitherInfinity) {
  for (const Bounded& each : {Div({1, 0}, {0, 0}, kF32), Rsqrt({-0.0, 0}, kF32)}) {
    EXPECT_TRUE(std::isinf(each.value));
    EXPECT_EQ(each.bound, kInfinity);
  }
  EXPECT_TRUE(std::isnan(Div({0, 0}, {0, 0}, kF32).value));
  EXPECT_EQ(Div({1, 0}, {0.1, 0.2}, kF32).bound, kInfinity);
  EXPECT_EQ(Rsqrt({0.1, 0.2}, kF32).bound, kInfinity);
}

TEST(BoundedTest, BeyondTheRangeOfF32IsInfinity) {
  const Bounded large = Mul({0x1p100, 0}, {-0x1p100, 0}, kF32);
  EXPECT_EQ(large.value, -kInfinity);
  EXPECT_EQ(large.bound, 0);
  EXPECT_EQ(Exp({100, 0}, kF32).value, kInfinity);
  EXPECT_EQ(Mul({0x1p127, 0x1p126}, {2, 0}, kF32).bound, kInfinity);
  const Bounded reciprocal = Div({1, 0}, large, kF32);
  EXPECT_EQ(reciprocal.value, 0);
  EXPECT_LT(reciprocal.bound, 1e-37);
}

TEST(BoundedTest, WhatNothingIsKnownOfStaysUnknown) {
  for (const UnaryCase& each : UnaryCases()) {
    EXPECT_EQ(each.bounded(kAnything, kF32).bound, kInfinity) << each.name;
  }
  for (const BinaryCase& each : BinaryCases()) {
    EXPECT_EQ(each.bounded(kAnything, {2, 0}, kF32).bound, kInfinity) << each.name;
    EXPECT_EQ(each.bounded({2, 0}, kAnything, kF32).bound, kInfinity) << each.name;
  }
}

TEST(BoundedTest, SumsAreExactWhileTheFormatHoldsEveryPartialSum) {
  const FloatFormat& bf16 = FormatOf(Dtype::kBf16);
  const auto bound = [&](const std::vector<double>& terms) {
    BoundedSum sum;
    for (const double each : terms) sum.Add({each, 0});
    return sum.Total(static_cast<double>(terms.size()) - 1, 0x1p-8, bf16).bound;
  };
  EXPECT_EQ(bound({100, -50, 100}), 0);
  EXPECT_EQ(bound({0.25, 63.5}), 0);
  EXPECT_GT(bound({0.25, 64.5}), 0);
  // The sum is small, the partial sums may not be.
  EXPECT_GT(bound({200, 101, -200, -101}), 0);
  EXPECT_EQ(bound({0, 0}), 0);
}

TEST(BoundedTest, TheDistanceOfNeighboursAndTheNearestNumber) {
  EXPECT_EQ(Ulp(FormatOf(Dtype::kBf16), 1.5), 0x1p-7);
  EXPECT_EQ(Ulp(FormatOf(Dtype::kF16), 1e-7), 0x1p-24);
  EXPECT_EQ(Ulp(FormatOf(Dtype::kF32), 0), 0x1p-149);
  EXPECT_EQ(RoundTo(Dtype::kF16, 65519.9), 65504);
  EXPECT_EQ(RoundTo(Dtype::kF16, -65520), -kInfinity);
  EXPECT_EQ(RoundTo(Dtype::kF8E4M3, 464), 448);
  EXPECT_TRUE(std::isnan(RoundTo(Dtype::kF8E4M3, 464.1)));
  // Rounding to f32 first would give a tie, and then the even neighbour below.
  EXPECT_EQ(RoundTo(Dtype::kF16, 1 + 0x1p-11 + 0x1p-40), 1 + 0x1p-10);
}

}  // namespace
}  // namespace cotune
