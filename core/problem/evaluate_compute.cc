#include "core/problem/evaluate_compute.h"

#include <cmath>

#include "core/base/check.h"

namespace cotune {
namespace {

template <typename Function>
void Unary(const ComputeNode& node, OperandValues operands, const Arithmetic& arithmetic,
           EvaluatedValue& result, const Function& function) {
  const FloatOperand a(node, operands, 0, arithmetic);
  ForEachPlace(result, [&](uint64_t i, uint64_t row, uint64_t column) {
    result.floats[i] = function(a(row, column), arithmetic);
  });
}

template <typename Function>
void Binary(const ComputeNode& node, OperandValues operands, const Arithmetic& arithmetic,
            EvaluatedValue& result, const Function& function) {
  const FloatOperand a(node, operands, 0, arithmetic);
  const FloatOperand b(node, operands, 1, arithmetic);
  ForEachPlace(result, [&](uint64_t i, uint64_t row, uint64_t column) {
    result.floats[i] = function(a(row, column), b(row, column), arithmetic);
  });
}

void EvaluateFunction(const ComputeNode& node, OperandValues operands, const Arithmetic& arithmetic,
                      EvaluatedValue& result) {
  const auto unary = [&](const auto& function) {
    Unary(node, operands, arithmetic, result, function);
  };
  switch (node.op) {
    case Op::kGeluErf:
      return unary(GeluErf);
    case Op::kGeluTanh:
      return unary(GeluTanh);
    case Op::kSilu:
      return unary(Silu);
    case Op::kTanh:
      return unary(Tanh);
    case Op::kSigmoid:
      return unary(Sigmoid);
    case Op::kExp:
      return unary(Exp);
    case Op::kLog:
      return unary(Log);
    case Op::kSqrt:
      return unary(Sqrt);
    case Op::kRsqrt:
      return unary(Rsqrt);
    default:
      COTUNE_CHECK(false, "every elementwise operation on floats is evaluated");
  }
}

// Elementwise operations whose operands and result are floats of one dtype.
void EvaluateFloats(const ComputeNode& node, OperandValues operands, const Arithmetic& arithmetic,
                    EvaluatedValue& result) {
  const auto unary = [&](const auto& function) {
    Unary(node, operands, arithmetic, result, function);
  };
  const auto binary = [&](const auto& function) {
    Binary(node, operands, arithmetic, result, function);
  };
  switch (node.op) {
    case Op::kAdd:
      return binary(Add);
    case Op::kSub:
      return binary(Sub);
    case Op::kMul:
      return binary(Mul);
    case Op::kDiv:
      return binary(Div);
    case Op::kMin:
      return binary(Min);
    case Op::kMax:
      return binary(Max);
    case Op::kNeg:
      return unary([](Bounded a, const Arithmetic&) { return Negated(a); });
    case Op::kAbs:
      return unary([](Bounded a, const Arithmetic&) { return Abs(a); });
    case Op::kRelu:
      return unary([](Bounded a, const Arithmetic& in) { return Max(a, {0, 0}, in); });
    case Op::kRound:
      return unary([](Bounded a, const Arithmetic&) { return RoundToInteger(a); });
    case Op::kClamp: {
      const Bounded low = Literal(node.constants[0], arithmetic);
      const Bounded high = Literal(node.constants[1], arithmetic);
      return unary([=](Bounded a, const Arithmetic& in) { return Min(Max(a, low, in), high, in); });
    }
    default:
      return EvaluateFunction(node, operands, arithmetic, result);
  }
}

// 1 or 0; of which either may be right unless it is certain.
BoundedInteger Truth(bool holds, bool is_certain) {
  return {holds ? 1 : 0, is_certain ? uint64_t{0} : uint64_t{1}};
}

BoundedInteger Less(Bounded a, Bounded b) {
  const double low = a.value - a.bound;
  const double high = a.value + a.bound;
  const bool is_known = a.bound + b.bound < kInfinity;
  const bool is_exact = a.bound + b.bound == 0;
  return Truth(a.value < b.value,
               is_exact || (is_known && (high < b.value - b.bound || low > b.value + b.bound)));
}

BoundedInteger Equal(Bounded a, Bounded b) {
  const double distance = std::fabs(a.value - b.value);
  const double bounds = a.bound + b.bound;
  return Truth(a.value == b.value, bounds == 0 || (bounds < kInfinity && distance > bounds));
}

bool Overlap(BoundedInteger a, BoundedInteger b) {
  return Distance(a.value, b.value) <= SumOfBounds(a.bound, b.bound);
}

BoundedInteger Less(BoundedInteger a, BoundedInteger b) {
  return Truth(a.value < b.value, a.bound + b.bound == 0 || !Overlap(a, b));
}

BoundedInteger Equal(BoundedInteger a, BoundedInteger b) {
  return Truth(a.value == b.value, a.bound + b.bound == 0 || !Overlap(a, b));
}

template <typename OperandKind>
void Compare(Op op, const OperandKind& a, const OperandKind& b, EvaluatedValue& result) {
  ForEachPlace(result, [&](uint64_t i, uint64_t row, uint64_t column) {
    const auto left = a(row, column);
    const auto right = b(row, column);
    SetInteger(result, i, op == Op::kLess ? Less(left, right) : Equal(left, right));
  });
}

void EvaluateComparison(const ComputeNode& node, OperandValues operands, EvaluatedValue& result) {
  const Dtype dtype = OperandDtype(node, operands, Dtype::kF32);
  if (IsFloat(dtype)) {
    const Arithmetic& arithmetic = ArithmeticOf(dtype);
    Compare(node.op, FloatOperand(node, operands, 0, arithmetic),
            FloatOperand(node, operands, 1, arithmetic), result);
  } else {
    Compare(node.op, IntegerOperand(node, operands, 0, dtype),
            IntegerOperand(node, operands, 1, dtype), result);
  }
}

// Picks by a condition; either where the condition may be 0 and may be another number.
template <typename Number>
Number Choose(BoundedInteger condition, Number a, Number b) {
  const bool holds = condition.value != 0;
  const Number chosen = holds ? a : b;
  const bool is_certain = condition.bound == 0 || Distance(condition.value, 0) > condition.bound;
  return is_certain ? chosen : Either(chosen, holds ? b : a);
}

void EvaluateWhere(const ComputeNode& node, OperandValues operands, EvaluatedValue& result) {
  const Dtype dtype = result.type.dtype;
  const IntegerOperand condition(node, operands, 0, Dtype::kU8);
  if (IsFloat(dtype)) {
    const FloatOperand a(node, operands, 1, ArithmeticOf(dtype));
    const FloatOperand b(node, operands, 2, ArithmeticOf(dtype));
    ForEachPlace(result, [&](uint64_t i, uint64_t row, uint64_t column) {
      result.floats[i] = Choose(condition(row, column), a(row, column), b(row, column));
    });
  } else {
    const IntegerOperand a(node, operands, 1, dtype);
    const IntegerOperand b(node, operands, 2, dtype);
    ForEachPlace(result, [&](uint64_t i, uint64_t row, uint64_t column) {
      SetInteger(result, i, Choose(condition(row, column), a(row, column), b(row, column)));
    });
  }
}

// A number on its way into a dtype of floats: through f32, unless it stays in f64.
Bounded Converted(Bounded value, const Arithmetic& arithmetic) {
  if (value.bound == kInfinity || !std::isfinite(value.value)) return value;
  if (value.bound != 0 || !Holds(arithmetic.format, value.value)) {
    value.bound += arithmetic.unit * (std::fabs(value.value) + value.bound) + arithmetic.step;
  }
  return InRange(value.value, value.bound, arithmetic);
}

void EvaluateCast(const ComputeNode& node, OperandValues operands, EvaluatedValue& result) {
  const Dtype from = OperandDtype(node, operands, Dtype::kF64);
  const Dtype to = result.type.dtype;
  const bool is_narrowed = from == Dtype::kF64 && to != Dtype::kF64;
  const Arithmetic& arithmetic = ArithmeticOf(to);
  if (IsFloat(from)) {
    const FloatOperand a(node, operands, 0, ArithmeticOf(from));
    ForEachPlace(result, [&](uint64_t i, uint64_t row, uint64_t column) {
      const Bounded value = a(row, column);
      if (!IsFloat(to)) {
        SetInteger(result, i, CastToInteger(value, to));
      } else {
        result.floats[i] = is_narrowed ? Converted(value, arithmetic) : value;
      }
    });
    return;
  }
  if (!IsFloat(to)) return EvaluateIntegers(node, operands, result);
  const IntegerOperand a(node, operands, 0, from);
  ForEachPlace(result, [&](uint64_t i, uint64_t row, uint64_t column) {
    const BoundedInteger value = a(row, column);
    const double bound = value.bound == kAnyInteger ? kInfinity : static_cast<double>(value.bound);
    result.floats[i] = Converted({static_cast<double>(value.value), bound}, arithmetic);
  });
}

}  // namespace

Dtype OperandDtype(const ComputeNode& node, OperandValues operands, Dtype otherwise) {
  for (size_t i = node.op == Op::kWhere ? 1 : 0; i < operands.size(); ++i) {
    if (operands[i] != nullptr) return operands[i]->type.dtype;
  }
  return otherwise;
}

Bounded Either(Bounded chosen, Bounded other) {
  if (chosen.bound == kInfinity || other.bound == kInfinity) return kAnything;
  const double larger = std::max(chosen.bound, other.bound);
  if (chosen.value == other.value) return {chosen.value, larger};
  if (std::isnan(chosen.value) && std::isnan(other.value)) return {kNan, 0};
  if (!std::isfinite(chosen.value) || !std::isfinite(other.value)) return kAnything;
  const double distance = std::fabs(chosen.value - other.value);
  return {chosen.value, std::max(chosen.bound, distance + other.bound)};
}

EvaluatedValue EvaluateCompute(const ComputeNode& node, const ValueType& type, uint64_t rows,
                               OperandValues operands) {
  EvaluatedValue result = Zeros(type, rows);
  const OpTraits& traits = TraitsOf(node.op);
  if (node.op == Op::kLess || node.op == Op::kEqual) {
    EvaluateComparison(node, operands, result);
  } else if (node.op == Op::kWhere) {
    EvaluateWhere(node, operands, result);
  } else if (node.op == Op::kCast) {
    EvaluateCast(node, operands, result);
  } else if (traits.is_compound() || traits.is_row_reduction()) {
    EvaluateRows(node, operands, result);
  } else if (IsFloat(type.dtype)) {
    EvaluateFloats(node, operands, ArithmeticOf(type.dtype), result);
  } else {
    EvaluateIntegers(node, operands, result);
  }
  return result;
}

}  // namespace cotune
