// Arithmetic on numbers that travel with their bounds: each function gives the value of an
// operation in double, and how far a right implementation may be off. It is the error that the
// operands may have, carried through the operation, plus the operation's own (program_evaluator.h
// lists them).
#ifndef COTUNE_CORE_PROBLEM_BOUNDED_H_
#define COTUNE_CORE_PROBLEM_BOUNDED_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/problem/evaluated_value.h"
#include "core/problem/problem.h"

namespace cotune {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
// Every number is right here, and so is NaN.
inline constexpr Bounded kAnything{0, kInfinity};
// The same where one number is the exact result, which not every implementation gives. Finite.
constexpr Bounded Unbounded(double value) { return {value, kInfinity}; }
// A number divided by a zero, whose sign is open.
inline constexpr Bounded kEitherInfinity{kInfinity, kInfinity};

inline bool IsFloat(Dtype dtype) {
  switch (dtype) {
    case Dtype::kI8:
    case Dtype::kU8:
    case Dtype::kI32:
    case Dtype::kI64:
      return false;
    case Dtype::kF32:
    case Dtype::kF64:
    case Dtype::kF16:
    case Dtype::kBf16:
    case Dtype::kF8E4M3:
    case Dtype::kF8E5M2:
      break;
  }
  return true;
}

inline uint64_t Distance(int64_t a, int64_t b) {
  return a > b ? static_cast<uint64_t>(a) - static_cast<uint64_t>(b)
               : static_cast<uint64_t>(b) - static_cast<uint64_t>(a);
}

// The numbers of a floating-point dtype.
struct FloatFormat {
  int precision;          // bits of the significand, with the leading one
  int smallest_exponent;  // of a number that is not subnormal
  double overflow;        // the smallest magnitude that rounds beyond the range
};
const FloatFormat& FormatOf(Dtype dtype);
inline bool IsNarrow(Dtype dtype) { return FormatOf(dtype).precision < 24; }

// The distance of neighbouring numbers of the format at this magnitude, which is finite. Not for
// f64.
inline double Ulp(const FloatFormat& format, double magnitude) {
  const int exponent = static_cast<int>(std::bit_cast<uint64_t>(magnitude) >> 52) - 1023;
  const int step = std::max(exponent, format.smallest_exponent) - format.precision + 1;
  return std::bit_cast<double>(static_cast<uint64_t>(step + 1023) << 52);
}

// To the nearest multiple of a power of two, ties to even. |value| < 2^51 steps.
inline double NearestMultiple(double value, double step) {
  const double shift = 0x1.8p52 * step;
  return (value + shift) - shift;
}

// Whether the format has this finite number. f64 has each.
inline bool Holds(const FloatFormat& format, double value) {
  if (format.precision >= 53) return true;
  return NearestMultiple(value, Ulp(format, std::fabs(value))) == value &&
         std::fabs(value) < format.overflow;
}

// The largest finite number of any dtype, rounded to a double.
double LargestOf(Dtype dtype);

// To nearest even; infinite beyond the range (f8_e4m3: NaN).
double RoundTo(Dtype dtype, double value);

// The arithmetic that operations are done in: f32, or f64 for f64.
struct Arithmetic {
  double unit;             // largest relative error of a rounding
  double step;             // distance of its subnormal numbers
  double smallest_normal;  // functions may give 0 for what is smaller
  double overflow;
  const FloatFormat& format;
};
// In f64 the evaluator rounds as well, so that its unit is two roundings.
const Arithmetic& ArithmeticOf(Dtype dtype);

// The multiple of a power of two, as large as possible, that a number is: 2^k for an odd multiple
// of it, infinity for 0. Sums of multiples of it are exact as long as they need no more bits than
// the dtype has.
inline double Granularity(double value) {
  if (value == 0) return kInfinity;
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const int exponent = static_cast<int>((bits >> 52) & 0x7FF);
  const uint64_t significand = bits & 0xFFFFFFFFFFFFFu;
  if (exponent == 0 || exponent == 0x7FF) return 0;  // subnormal: taken as not exact
  const int trailing = significand == 0 ? 52 : std::countr_zero(significand);
  const int step = exponent - 1023 - 52 + trailing;
  return step < -1022 ? 0 : std::bit_cast<double>(static_cast<uint64_t>(step + 1023) << 52);
}

// A result that is NaN, infinite, or not known to be within the range.
Bounded BeyondRange(double value, double bound, const Arithmetic& arithmetic);
inline Bounded InRange(double value, double bound, const Arithmetic& arithmetic) {
  if (std::fabs(value) + bound < arithmetic.overflow) [[likely]]
    return {value, bound};
  return BeyondRange(value, bound, arithmetic);
}

// The result of a function of two numbers, of which one is not finite or the result is not: what it
// gives at all ends of their intervals.
template <typename Function>
Bounded AtCorners(Bounded a, Bounded b, const Arithmetic& arithmetic, const Function& function) {
  if (a.bound == kInfinity || b.bound == kInfinity) return kAnything;
  const double value = function(a.value, b.value);
  double bound = 0;
  for (const double x : {a.value - a.bound, a.value + a.bound}) {
    for (const double y : {b.value - b.bound, b.value + b.bound}) {
      const double corner = function(x, y);
      if (corner == value || (std::isnan(corner) && std::isnan(value))) continue;
      if (!std::isfinite(corner) || !std::isfinite(value)) return kAnything;
      bound = std::max(bound, std::fabs(corner - value));
    }
  }
  if (!std::isfinite(value)) return {value, 0};
  return BeyondRange(value, bound + (2 * arithmetic.unit * std::fabs(value)), arithmetic);
}

inline Bounded Add(Bounded a, Bounded b, const Arithmetic& arithmetic) {
  const double value = a.value + b.value;
  double bound = a.bound + b.bound;
  bool is_exact = bound == 0;
  if (is_exact && arithmetic.format.precision < 53) {
    is_exact = std::isfinite(value) && Holds(arithmetic.format, value);
  } else if (is_exact) {
    const double rest = value - a.value;
    is_exact = (a.value - (value - rest)) + (b.value - rest) == 0;
  }
  if (!is_exact) bound += arithmetic.unit * (std::fabs(value) + bound);
  if (std::fabs(value) + bound < arithmetic.overflow) [[likely]]
    return {value, bound};
  return AtCorners(a, b, arithmetic, [](double x, double y) { return x + y; });
}

inline Bounded Negated(Bounded a) { return {-a.value, a.bound}; }

inline Bounded Sub(Bounded a, Bounded b, const Arithmetic& arithmetic) {
  return Add(a, Negated(b), arithmetic);
}

inline Bounded Mul(Bounded a, Bounded b, const Arithmetic& arithmetic) {
  const double value = a.value * b.value;
  double bound = std::fabs(a.value) * b.bound + std::fabs(b.value) * a.bound + a.bound * b.bound;
  bool is_exact = bound == 0 && std::isfinite(value);
  if (is_exact) {
    is_exact = arithmetic.format.precision < 53 ? Holds(arithmetic.format, value)
                                                : std::fma(a.value, b.value, -value) == 0;
  }
  if (!is_exact) bound += arithmetic.unit * (std::fabs(value) + bound) + arithmetic.step;
  if (std::fabs(value) + bound < arithmetic.overflow) [[likely]]
    return {value, bound};
  return AtCorners(a, b, arithmetic, [](double x, double y) { return x * y; });
}

Bounded DivByMaybeZero(Bounded a, Bounded b);

inline Bounded Div(Bounded a, Bounded b, const Arithmetic& arithmetic) {
  const double away_from_zero = std::fabs(b.value) - b.bound;
  if (away_from_zero <= 0) return DivByMaybeZero(a, b);
  const double value = a.value / b.value;
  double bound = (a.bound + std::fabs(value) * b.bound) / away_from_zero;
  if (bound != 0 || value != 0) {
    bound += 4 * arithmetic.unit * (std::fabs(value) + bound) + arithmetic.step;
  }
  if (std::fabs(value) + bound < arithmetic.overflow) [[likely]]
    return {value, bound};
  return AtCorners(a, b, arithmetic, [](double x, double y) { return x / y; });
}

inline double MinOrNan(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? kNan : std::min(a, b);
}
inline double MaxOrNan(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? kNan : std::max(a, b);
}

inline Bounded Min(Bounded a, Bounded b, const Arithmetic& arithmetic) {
  const double value = MinOrNan(a.value, b.value);
  const double low = std::min(a.value - a.bound, b.value - b.bound);
  const double high = std::min(a.value + a.bound, b.value + b.bound);
  const double bound = a.bound + b.bound == 0 ? 0 : std::max(value - low, high - value);
  if (std::fabs(value) + bound < arithmetic.overflow) [[likely]]
    return {value, bound};
  return AtCorners(a, b, arithmetic, MinOrNan);
}

inline Bounded Max(Bounded a, Bounded b, const Arithmetic& arithmetic) {
  return Negated(Min(Negated(a), Negated(b), arithmetic));
}

inline Bounded Abs(Bounded a) { return {std::fabs(a.value), a.bound}; }

// A function that rises or falls all over the operand's interval, without an error of its own.
template <typename Function>
Bounded Monotone(Bounded a, const Function& function) {
  if (a.bound == kInfinity) return kAnything;
  const double value = function(a.value);
  if (a.bound == 0) return {value, 0};
  const double low = function(a.value - a.bound);
  const double high = function(a.value + a.bound);
  const double bound = std::max(std::fabs(high - value), std::fabs(low - value));
  if (std::isfinite(low) && std::isfinite(high) && std::isfinite(value)) return {value, bound};
  const auto is_same = [&](double end) {
    return end == value || (std::isnan(end) && std::isnan(value));
  };
  return is_same(low) && is_same(high) ? Bounded{value, 0} : kAnything;
}

Bounded Sqrt(Bounded a, const Arithmetic& arithmetic);
Bounded Rsqrt(Bounded a, const Arithmetic& arithmetic);
Bounded Exp(Bounded a, const Arithmetic& arithmetic);
Bounded Log(Bounded a, const Arithmetic& arithmetic);
Bounded Tanh(Bounded a, const Arithmetic& arithmetic);
Bounded Sigmoid(Bounded a, const Arithmetic& arithmetic);
Bounded Silu(Bounded a, const Arithmetic& arithmetic);
Bounded GeluErf(Bounded a, const Arithmetic& arithmetic);
Bounded GeluTanh(Bounded a, const Arithmetic& arithmetic);
Bounded RoundToInteger(Bounded a);

// A number written in a program, which f32 may round.
Bounded Literal(double value, const Arithmetic& arithmetic);

// A sum in any order. Its own error is unit x `roundings` x the sum of the absolute values, or none
// where the format holds every partial sum.
class BoundedSum {
 public:
  void Add(Bounded term) {
    // The sum is compensated (Neumaier), so that the evaluator's own rounding does not count.
    const double sum = sum_ + term.value;
    const bool sum_is_larger = std::fabs(sum_) >= std::fabs(term.value);
    rest_ += sum_is_larger ? (sum_ - sum) + term.value : (term.value - sum) + sum_;
    sum_ = sum;
    absolute_ += std::fabs(term.value);
    bounds_ += term.bound;
    granularity_ = std::min(granularity_, Granularity(term.value));
  }
  // In numbers of this format; `unit` is the largest relative error of one rounding in it.
  Bounded Total(double roundings, double unit, const FloatFormat& format,
                bool may_be_exact = true) const;

 private:
  double sum_ = 0;
  double rest_ = 0;
  double absolute_ = 0;
  double bounds_ = 0;
  double granularity_ = kInfinity;
};

}  // namespace cotune

#endif  // COTUNE_CORE_PROBLEM_BOUNDED_H_
