#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/base/check.h"
#include "core/problem/evaluate_compute.h"

namespace cotune {
namespace {

// Wide enough for every product of two integers.
using Wide = __int128;

template <typename Integer>
std::pair<int64_t, int64_t> Range() {
  return {std::numeric_limits<Integer>::min(), std::numeric_limits<Integer>::max()};
}

int64_t Wrapped(Wide value, Dtype dtype) {
  switch (dtype) {
    case Dtype::kI8:
      return static_cast<int8_t>(value);
    case Dtype::kU8:
      return static_cast<uint8_t>(value);
    case Dtype::kI32:
      return static_cast<int32_t>(value);
    default:
      return static_cast<int64_t>(value);
  }
}

// The result of an operation in its dtype. What may wrap around, but need not, may be anything.
BoundedInteger InDtype(Wide value, uint64_t bound, Dtype dtype) {
  const auto [low, high] = RangeOf(dtype);
  if (bound != 0 && (bound == kAnyInteger || value - Wide{bound} < Wide{low} ||
                     value + Wide{bound} > Wide{high})) {
    bound = kAnyInteger;
  }
  return {Wrapped(value, dtype), bound};
}

uint64_t ProductBound(BoundedInteger a, BoundedInteger b) {
  if (a.bound == 0 && b.bound == 0) return 0;
  const auto magnitude = [](int64_t value) { return std::fabs(static_cast<double>(value)); };
  const double bound = magnitude(a.value) * static_cast<double>(b.bound) +
                       magnitude(b.value) * static_cast<double>(a.bound) +
                       static_cast<double>(a.bound) * static_cast<double>(b.bound);
  return bound < 0x1p52 ? static_cast<uint64_t>(bound) : kAnyInteger;
}

}  // namespace

std::pair<int64_t, int64_t> RangeOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kI8:
      return Range<int8_t>();
    case Dtype::kU8:
      return Range<uint8_t>();
    case Dtype::kI32:
      return Range<int32_t>();
    case Dtype::kI64:
      return Range<int64_t>();
    default:
      COTUNE_CHECK(false, "only integers have a range");
  }
}

BoundedInteger CastToInteger(Bounded value, Dtype to) {
  if (value.bound == kInfinity) return {0, kAnyInteger};
  const auto [low, high] = RangeOf(to);
  const auto cast = [low = low, high = high](double number) -> int64_t {
    if (std::isnan(number)) return 0;
    if (number <= static_cast<double>(low)) return low;
    // For i64 this is 2^63, which is beyond the range.
    if (number >= static_cast<double>(high)) return high;
    return static_cast<int64_t>(number);
  };
  const int64_t result = cast(value.value);
  if (value.bound == 0) return {result, 0};
  return {result, std::max(Distance(result, cast(value.value - value.bound)),
                           Distance(result, cast(value.value + value.bound)))};
}

BoundedInteger OfTwoIntegers(Op op, BoundedInteger a, BoundedInteger b, Dtype dtype) {
  const uint64_t bounds = SumOfBounds(a.bound, b.bound);
  switch (op) {
    case Op::kAdd:
      return InDtype(Wide{a.value} + Wide{b.value}, bounds, dtype);
    case Op::kSub:
      return InDtype(Wide{a.value} - Wide{b.value}, bounds, dtype);
    case Op::kMul:
      return InDtype(Wide{a.value} * Wide{b.value}, ProductBound(a, b), dtype);
    // Neither moves by more than the operand that moves most.
    case Op::kMin:
      return {std::min(a.value, b.value), std::max(a.bound, b.bound)};
    case Op::kMax:
      return {std::max(a.value, b.value), std::max(a.bound, b.bound)};
    default:
      COTUNE_CHECK(false, "every operation on two integers is evaluated");
  }
}

BoundedInteger IntegerAt(const EvaluatedValue& value, uint64_t element) {
  return {value.integers[element],
          value.integer_bounds.empty() ? 0 : value.integer_bounds[element]};
}

void SetInteger(EvaluatedValue& result, uint64_t element, BoundedInteger value) {
  result.integers[element] = value.value;
  if (value.bound == 0 && result.integer_bounds.empty()) return;
  if (result.integer_bounds.empty()) result.integer_bounds.resize(result.integers.size());
  result.integer_bounds[element] = value.bound;
}

BoundedInteger Either(BoundedInteger chosen, BoundedInteger other) {
  const uint64_t distance = Distance(chosen.value, other.value);
  return {chosen.value, std::max(chosen.bound, SumOfBounds(distance, other.bound))};
}

void EvaluateIntegers(const ComputeNode& node, OperandValues operands, EvaluatedValue& result) {
  const Dtype dtype = result.type.dtype;
  const IntegerOperand a(node, operands, 0, dtype);
  const auto each = [&](const auto& function) {
    ForEachPlace(result, [&](uint64_t i, uint64_t row, uint64_t column) {
      SetInteger(result, i, function(row, column));
    });
  };
  switch (node.op) {
    case Op::kCast:
      return each([&](uint64_t row, uint64_t column) {
        const BoundedInteger value = a(row, column);
        return InDtype(value.value, value.bound, dtype);
      });
    case Op::kNeg:
      return each([&](uint64_t row, uint64_t column) {
        const BoundedInteger value = a(row, column);
        return InDtype(-Wide{value.value}, value.bound, dtype);
      });
    case Op::kAbs:
      return each([&](uint64_t row, uint64_t column) {
        const BoundedInteger value = a(row, column);
        return InDtype(value.value < 0 ? -Wide{value.value} : Wide{value.value}, value.bound,
                       dtype);
      });
    case Op::kRelu:
      return each([&](uint64_t row, uint64_t column) {
        return OfTwoIntegers(Op::kMax, a(row, column), {0, 0}, dtype);
      });
    case Op::kClamp: {
      const BoundedInteger low = CastToInteger({node.constants[0], 0}, dtype);
      const BoundedInteger high = CastToInteger({node.constants[1], 0}, dtype);
      return each([&](uint64_t row, uint64_t column) {
        return OfTwoIntegers(Op::kMin, OfTwoIntegers(Op::kMax, a(row, column), low, dtype), high,
                             dtype);
      });
    }
    default: {
      const IntegerOperand b(node, operands, 1, dtype);
      return each([&](uint64_t row, uint64_t column) {
        return OfTwoIntegers(node.op, a(row, column), b(row, column), dtype);
      });
    }
  }
}

}  // namespace cotune
