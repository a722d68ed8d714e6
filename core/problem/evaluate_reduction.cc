#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "core/base/check.h"
#include "core/problem/bounded.h"
#include "core/problem/evaluate_collective.h"
#include "core/problem/evaluate_compute.h"

namespace cotune {
namespace {

// The dtype that travels, and the largest relative error of a rounding in it.
struct Wire {
  const FloatFormat& format;
  const Arithmetic& arithmetic;
  double unit;
};

Wire WireOf(Dtype dtype) {
  const FloatFormat& format = FormatOf(dtype);
  const Arithmetic& arithmetic = ArithmeticOf(dtype);
  return {format, arithmetic, IsNarrow(dtype) ? std::ldexp(1, -format.precision) : arithmetic.unit};
}

using Operands = std::span<const Bounded>;

Bounded Sum(Operands operands, const Wire& wire) {
  BoundedSum sum;
  for (const Bounded& each : operands) sum.Add(each);
  return sum.Total(static_cast<double>(operands.size()) - 1, wire.unit, wire.format);
}

// Either the sum is divided, or what is added up was multiplied by 1 / n before. The latter is
// exact for powers of two.
Bounded Average(Operands operands, const Wire& wire) {
  const auto ranks = static_cast<double>(operands.size());
  const bool is_power_of_two = std::has_single_bit(operands.size());
  BoundedSum sum;
  for (const Bounded& each : operands) sum.Add({each.value / ranks, each.bound / ranks});
  const Bounded undivided = Sum(operands, wire);
  const double largest = std::fabs(undivided.value) + undivided.bound;
  if (std::isfinite(undivided.value) && largest >= wire.format.overflow) {
    return Unbounded(undivided.value / ranks);
  }
  // 1 / n, the product with it, and the quotient add a rounding each.
  const double roundings = ranks - 1 + (is_power_of_two ? 0 : 3);
  Bounded average = sum.Total(roundings, wire.unit, wire.format, is_power_of_two);
  // One rounding in double, where the quotients have one each.
  if (std::isfinite(undivided.value)) average.value = undivided.value / ranks;
  return average;
}

// What partial products of any ranks in any order can be.
class ProductRange {
 public:
  void Add(Bounded factor) {
    const double magnitude = std::fabs(factor.value);
    largest_ *= std::max(1.0, magnitude + factor.bound);
    if (magnitude != 0) smallest_ *= std::min(1.0, magnitude);
    is_finite_ = is_finite_ && std::isfinite(factor.value);
    is_certain_ = is_certain_ && factor.bound == 0;
    const double granularity = Granularity(magnitude);
    significand_ *= magnitude == 0 ? 1 : granularity == 0 ? kInfinity : magnitude / granularity;
  }
  bool may_overflow(const FloatFormat& format) const { return !(largest_ < format.overflow); }
  bool may_underflow(const FloatFormat& format) const {
    return smallest_ < std::ldexp(1, format.smallest_exponent);
  }
  // No partial product needs more bits than the format has.
  bool is_exact(const FloatFormat& format) const {
    return is_certain_ && !may_underflow(format) && significand_ < std::ldexp(1, format.precision);
  }
  bool is_finite() const { return is_finite_; }
  bool is_certain() const { return is_certain_; }
  double largest() const { return largest_; }

 private:
  double largest_ = 1;
  double smallest_ = 1;
  double significand_ = 1;
  bool is_finite_ = true;
  bool is_certain_ = true;
};

Bounded Product(Operands operands, const Wire& wire) {
  ProductRange range;
  Bounded product{1, 0};
  for (const Bounded& each : operands) {
    range.Add(each);
    const double bound = std::fabs(product.value) * each.bound +
                         std::fabs(each.value) * product.bound + product.bound * each.bound;
    product = {product.value * each.value, bound};
  }
  if (!range.is_finite()) {
    // Infinities and NaN stay, unless a partial product that is taken for 0 meets an infinity.
    const bool is_known = range.is_certain() && !range.may_underflow(wire.format);
    return is_known ? Bounded{product.value, 0} : kAnything;
  }
  if (operands.size() == 1) return operands[0];
  if (range.may_overflow(wire.format)) {
    return std::isfinite(product.value) ? Unbounded(product.value) : kAnything;
  }
  if (range.is_exact(wire.format)) return {product.value, 0};
  const double roundings = static_cast<double>(operands.size()) - 1;
  product.bound += roundings * wire.unit * (std::fabs(product.value) + product.bound);
  if (range.may_underflow(wire.format)) {
    product.bound += roundings * range.largest() * std::ldexp(1, wire.format.smallest_exponent);
  }
  return product;
}

// Some libraries pass NaN over, others return it.
Bounded Extreme(Operands operands, bool is_max, const Wire& wire) {
  const auto is_nan = [](const Bounded& each) { return std::isnan(each.value); };
  if (std::any_of(operands.begin(), operands.end(), is_nan)) {
    return std::all_of(operands.begin(), operands.end(), is_nan) ? operands[0] : kAnything;
  }
  Bounded best = operands[0];
  for (const Bounded& each : operands.subspan(1)) {
    best = is_max ? Max(best, each, wire.arithmetic) : Min(best, each, wire.arithmetic);
  }
  return best;
}

Bounded ReduceFloats(Reduction reduction, Operands operands, const Wire& wire) {
  switch (reduction) {
    case Reduction::kSum:
      return Sum(operands, wire);
    case Reduction::kAverage:
      return Average(operands, wire);
    case Reduction::kProduct:
      return Product(operands, wire);
    case Reduction::kMin:
    case Reduction::kMax:
      return Extreme(operands, reduction == Reduction::kMax, wire);
    case Reduction::kNone:
      break;
  }
  COTUNE_CHECK(false, "a collective that reduces has a reduction");
}

BoundedInteger ReduceIntegers(Reduction reduction, std::span<const BoundedInteger> operands,
                              Dtype dtype) {
  const auto folded = [&](Op op) {
    BoundedInteger result = operands[0];
    for (const BoundedInteger& each : operands.subspan(1)) {
      result = OfTwoIntegers(op, result, each, dtype);
    }
    return result;
  };
  switch (reduction) {
    case Reduction::kSum:
      return folded(Op::kAdd);
    case Reduction::kProduct:
      return folded(Op::kMul);
    case Reduction::kMin:
      return folded(Op::kMin);
    case Reduction::kMax:
      return folded(Op::kMax);
    case Reduction::kAverage: {
      const BoundedInteger sum = folded(Op::kAdd);
      const bool is_known = sum.bound == 0 || sum.bound == kAnyInteger;
      const auto ranks = static_cast<int64_t>(operands.size());
      return {sum.value / ranks, is_known ? sum.bound : sum.bound / operands.size() + 1};
    }
    case Reduction::kNone:
      break;
  }
  COTUNE_CHECK(false, "a collective that reduces has a reduction");
}

}  // namespace

EvaluatedValue Reduce(Reduction reduction, const ValueType& type, uint64_t rows,
                      uint64_t first_element, const RankValues& operands) {
  EvaluatedValue result = Zeros(type, rows);
  const uint64_t elements = result.elements();
  const auto gather = [&](auto& of_ranks, const auto& read) {
    for (size_t rank = 0; rank < operands.size(); ++rank) of_ranks[rank] = read(*operands[rank]);
  };
  if (IsFloat(type.dtype)) {
    const Wire wire = WireOf(type.dtype);
    std::vector<Bounded> of_ranks(operands.size());
    for (uint64_t i = 0; i < elements; ++i) {
      gather(of_ranks, [&](const EvaluatedValue& from) { return from.floats[first_element + i]; });
      const Bounded reduced = ReduceFloats(reduction, of_ranks, wire);
      result.floats[i] = reduced.bound == kInfinity
                             ? reduced
                             : InRange(reduced.value, reduced.bound, wire.arithmetic);
    }
    return result;
  }
  std::vector<BoundedInteger> of_ranks(operands.size());
  for (uint64_t i = 0; i < elements; ++i) {
    gather(of_ranks,
           [&](const EvaluatedValue& from) { return IntegerAt(from, first_element + i); });
    SetInteger(result, i, ReduceIntegers(reduction, of_ranks, type.dtype));
  }
  return result;
}

}  // namespace cotune
