#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/check.h"
#include "core/problem/evaluate_compute.h"

namespace cotune {
namespace {

using Row = std::span<const Bounded>;

// A row whose largest magnitude is below this is quantized as if it were this, so that the scale of
// a row of zeros is no zero.
constexpr double kScaledMin = 1e-12;

Row RowOf(const EvaluatedValue& value, uint64_t row) {
  return Row(value.floats).subspan(row * value.type.columns, value.type.columns);
}

double Count(Row row) { return static_cast<double>(row.size()); }

// The sum of term(x) over a row, added up in any tree.
template <typename Term>
Bounded SumOver(Row row, const Arithmetic& arithmetic, const Term& term) {
  BoundedSum sum;
  for (const Bounded& x : row) sum.Add(term(x));
  const double additions = Count(row) - 1;
  const double roundings = std::min(additions, std::max(4.0, Count(row) / 8));
  const Bounded total = sum.Total(roundings, arithmetic.unit, arithmetic.format);
  return InRange(total.value, total.bound, arithmetic);
}

Bounded RowSum(Row row, const Arithmetic& arithmetic) {
  return SumOver(row, arithmetic, [](Bounded x) { return x; });
}

// The largest term(x) of a row.
template <typename Term>
Bounded MaxOver(Row row, const Term& term) {
  Bounded best{-kInfinity, 0};
  double low = -kInfinity;
  double high = -kInfinity;
  for (const Bounded& x : row) {
    const Bounded each = term(x);
    if (each.bound == kInfinity) return kAnything;
    best.value = MaxOrNan(best.value, each.value);
    low = std::max(low, each.value - each.bound);
    high = std::max(high, each.value + each.bound);
  }
  if (std::isfinite(best.value)) best.bound = std::max(high - best.value, best.value - low);
  return best;
}

Bounded Mean(Bounded sum, Row row, const Arithmetic& arithmetic) {
  return Div(sum, {Count(row), 0}, arithmetic);
}

Bounded MeanSquare(Row row, const Arithmetic& arithmetic) {
  const auto square = [&](Bounded x) { return Mul(x, x, arithmetic); };
  return Mean(SumOver(row, arithmetic, square), row, arithmetic);
}

// One number for each row.
Bounded Reduced(const ComputeNode& node, Row row, const Arithmetic& arithmetic) {
  switch (node.op) {
    case Op::kRowSum:
      return RowSum(row, arithmetic);
    case Op::kRowMax:
      return MaxOver(row, [](Bounded x) { return x; });
    case Op::kRowMean:
      return Mean(RowSum(row, arithmetic), row, arithmetic);
    case Op::kRowMeanSquare:
      return MeanSquare(row, arithmetic);
    case Op::kQuantizeScale: {
      const Bounded largest{LargestOf(node.to), 0};
      const Bounded magnitude = MaxOver(row, [](Bounded x) { return Abs(x); });
      return Div(Max(magnitude, Literal(kScaledMin, arithmetic), arithmetic), largest, arithmetic);
    }
    default:
      COTUNE_CHECK(false, "every row reduction is evaluated");
  }
}

// 1 / sqrt(mean_square + eps)
Bounded InverseDeviation(Bounded mean_square, const ComputeNode& node,
                         const Arithmetic& arithmetic) {
  return Rsqrt(Add(mean_square, Literal(node.constants[0], arithmetic), arithmetic), arithmetic);
}

void RmsNorm(const ComputeNode& node, OperandValues operands, const Arithmetic& arithmetic,
             EvaluatedValue& result) {
  const FloatOperand gamma(node, operands, 1, arithmetic);
  uint64_t i = 0;
  for (uint64_t row = 0; row < result.rows; ++row) {
    const Row x = RowOf(*operands[0], row);
    const Bounded scale = InverseDeviation(MeanSquare(x, arithmetic), node, arithmetic);
    for (uint64_t column = 0; column < x.size(); ++column) {
      result.floats[i++] = Mul(Mul(x[column], scale, arithmetic), gamma(row, column), arithmetic);
    }
  }
}

void LayerNorm(const ComputeNode& node, OperandValues operands, const Arithmetic& arithmetic,
               EvaluatedValue& result) {
  const FloatOperand gamma(node, operands, 1, arithmetic);
  const FloatOperand beta(node, operands, 2, arithmetic);
  std::vector<Bounded> centred(result.type.columns);
  uint64_t i = 0;
  for (uint64_t row = 0; row < result.rows; ++row) {
    const Row x = RowOf(*operands[0], row);
    const Bounded mean = Mean(RowSum(x, arithmetic), x, arithmetic);
    std::transform(x.begin(), x.end(), centred.begin(),
                   [&](Bounded each) { return Sub(each, mean, arithmetic); });
    const Bounded scale = InverseDeviation(MeanSquare(centred, arithmetic), node, arithmetic);
    for (uint64_t column = 0; column < x.size(); ++column) {
      const Bounded normal = Mul(centred[column], scale, arithmetic);
      result.floats[i++] =
          Add(Mul(normal, gamma(row, column), arithmetic), beta(row, column), arithmetic);
    }
  }
}

// exp(x - largest) / sum. The result does not depend on what is subtracted, so that the error of
// the largest element cancels.
void Softmax(OperandValues operands, const Arithmetic& arithmetic, EvaluatedValue& result) {
  std::vector<Bounded> powers(result.type.columns);
  uint64_t i = 0;
  for (uint64_t row = 0; row < result.rows; ++row) {
    const Row x = RowOf(*operands[0], row);
    const Bounded largest = MaxOver(x, [](Bounded each) { return each; });
    const Bounded shift{largest.value, largest.bound == kInfinity ? kInfinity : 0};
    std::transform(x.begin(), x.end(), powers.begin(),
                   [&](Bounded each) { return Exp(Sub(each, shift, arithmetic), arithmetic); });
    const Bounded sum = RowSum(powers, arithmetic);
    for (const Bounded& power : powers) result.floats[i++] = Div(power, sum, arithmetic);
  }
}

void Quantize(const ComputeNode& node, OperandValues operands, const Arithmetic& arithmetic,
              EvaluatedValue& result) {
  const FloatOperand x(node, operands, 0, arithmetic);
  const FloatOperand scale(node, operands, 1, arithmetic);
  const Dtype to = result.type.dtype;
  const bool is_float = IsFloat(to);
  // The same on both sides: i8 does without -128.
  const Bounded low{IsFloat(to) || to == Dtype::kI8 ? -LargestOf(to) : 0, 0};
  const Bounded high{LargestOf(to), 0};
  ForEachPlace(result, [&](uint64_t i, uint64_t row, uint64_t column) {
    Bounded ratio = Div(x(row, column), scale(row, column), arithmetic);
    if (!is_float) ratio = RoundToInteger(ratio);
    const Bounded clamped = Min(Max(ratio, low, arithmetic), high, arithmetic);
    if (is_float) {
      result.floats[i] = clamped;
    } else {
      SetInteger(result, i, CastToInteger(clamped, to));
    }
  });
}

}  // namespace

void EvaluateRows(const ComputeNode& node, OperandValues operands, EvaluatedValue& result) {
  COTUNE_CHECK(operands[0] != nullptr, "the first operand of a row operation is a value");
  const Arithmetic& arithmetic = ArithmeticOf(operands[0]->type.dtype);
  switch (node.op) {
    case Op::kRmsNorm:
      return RmsNorm(node, operands, arithmetic, result);
    case Op::kLayerNorm:
      return LayerNorm(node, operands, arithmetic, result);
    case Op::kSoftmax:
      return Softmax(operands, arithmetic, result);
    case Op::kQuantize:
      return Quantize(node, operands, arithmetic, result);
    default:
      for (uint64_t row = 0; row < result.rows; ++row) {
        result.floats[row] = Reduced(node, RowOf(*operands[0], row), arithmetic);
      }
  }
}

}  // namespace cotune
