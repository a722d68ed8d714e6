#include "core/problem/bounded.h"

#include <limits>

#include "core/base/check.h"

namespace cotune {
namespace {

// The own errors of functions, in units: 2 ulp and 4 ulp.
constexpr double kTwoUlp = 4;
constexpr double kFourUlp = 8;

constexpr FloatFormat kF32Format{24, -126, 0x1.ffffffp127};
constexpr FloatFormat kF64Format{53, -1022, kInfinity};
constexpr FloatFormat kF16Format{11, -14, 65520};
constexpr FloatFormat kBf16Format{8, -126, 0x1.ffp127};
// 464 is halfway to the next number and rounds to 448; the next double does not.
constexpr FloatFormat kF8E4M3Format{4, -6, 0x1.d000000000001p8};
constexpr FloatFormat kF8E5M2Format{3, -14, 61440};

constexpr Arithmetic kF32Arithmetic{0x1p-24, 0x1p-149, 0x1p-126, kF32Format.overflow, kF32Format};
constexpr Arithmetic kF64Arithmetic{0x1p-52, 0x1p-1073, 0x1p-1022, kInfinity, kF64Format};

// Adds a function's own error of `units` roundings to its result. The steps of its formula are as
// large as `magnitude`, if that is more than the result.
Bounded WithOwnError(Bounded result, double units, const Arithmetic& arithmetic,
                     double magnitude = 0) {
  if (!std::isfinite(result.value) || result.bound == kInfinity) return result;
  magnitude = std::max(magnitude, std::fabs(result.value));
  if (magnitude == 0 && result.bound == 0) return result;
  const double own = units * arithmetic.unit * (magnitude + result.bound);
  return InRange(result.value, result.bound + own + arithmetic.smallest_normal, arithmetic);
}

// A function that falls up to `dip` and rises from there.
template <typename Function>
Bounded WithDip(Bounded a, double dip, const Function& function) {
  // The formulas multiply it by 0, unless they take care of it.
  if (a.value == -kInfinity) return kAnything;
  Bounded result = Monotone(a, function);
  if (a.bound != kInfinity && std::fabs(a.value - dip) < a.bound) {
    result.bound = std::max(result.bound, std::fabs(function(dip) - result.value));
  }
  return result;
}

double SigmoidOf(double x) { return 1 / (1 + std::exp(-x)); }
double SiluOf(double x) { return x / (1 + std::exp(-x)); }
double ErfPart(double x) { return std::erf(x * 0.70710678118654752440); }
double TanhPart(double x) { return std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)); }

}  // namespace

const FloatFormat& FormatOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF32:
      return kF32Format;
    case Dtype::kF64:
      return kF64Format;
    case Dtype::kF16:
      return kF16Format;
    case Dtype::kBf16:
      return kBf16Format;
    case Dtype::kF8E4M3:
      return kF8E4M3Format;
    case Dtype::kF8E5M2:
      return kF8E5M2Format;
    case Dtype::kI8:
    case Dtype::kU8:
    case Dtype::kI32:
    case Dtype::kI64:
      break;
  }
  COTUNE_CHECK(false, "only floats have a format");
}

const Arithmetic& ArithmeticOf(Dtype dtype) {
  return dtype == Dtype::kF64 ? kF64Arithmetic : kF32Arithmetic;
}

double LargestOf(Dtype dtype) {
  switch (dtype) {
    case Dtype::kI8:
      return 127;
    case Dtype::kU8:
      return 255;
    case Dtype::kI32:
      return std::numeric_limits<int32_t>::max();
    case Dtype::kI64:
      return static_cast<double>(std::numeric_limits<int64_t>::max());
    case Dtype::kF32:
      return std::numeric_limits<float>::max();
    case Dtype::kF64:
      return std::numeric_limits<double>::max();
    case Dtype::kF16:
      return 65504;
    case Dtype::kBf16:
      return 0x1.fep127;
    case Dtype::kF8E4M3:
      return 448;
    case Dtype::kF8E5M2:
      return 57344;
  }
  COTUNE_CHECK(false, "every dtype has a largest number");
}

double RoundTo(Dtype dtype, double value) {
  if (dtype == Dtype::kF64 || std::isnan(value)) return value;
  const FloatFormat& format = FormatOf(dtype);
  if (std::fabs(value) >= format.overflow) {
    return dtype == Dtype::kF8E4M3 ? kNan : std::copysign(kInfinity, value);
  }
  const double rounded = NearestMultiple(value, Ulp(format, std::fabs(value)));
  return std::copysign(rounded, value);
}

Bounded BeyondRange(double value, double bound, const Arithmetic& arithmetic) {
  if (std::isnan(bound) || bound == kInfinity) return kAnything;
  if (!std::isfinite(value)) return {value, 0};
  if (std::fabs(value) + bound < arithmetic.overflow) return {value, bound};
  if (std::fabs(value) - bound >= arithmetic.overflow) return {std::copysign(kInfinity, value), 0};
  return kAnything;
}

Bounded DivByMaybeZero(Bounded a, Bounded b) {
  if (a.bound == kInfinity || b.bound == kInfinity) return kAnything;
  if (std::isnan(a.value) || std::isnan(b.value)) return {kNan, 0};
  if (b.bound != 0) return kAnything;
  if (a.value == 0 && a.bound == 0) return {kNan, 0};
  return std::fabs(a.value) > a.bound ? kEitherInfinity : kAnything;
}

Bounded Sqrt(Bounded a, const Arithmetic& arithmetic) {
  return WithOwnError(Monotone(a, [](double x) { return std::sqrt(x); }), kTwoUlp, arithmetic);
}

Bounded Rsqrt(Bounded a, const Arithmetic& arithmetic) {
  if (a.value == 0 && a.bound == 0) return kEitherInfinity;
  return WithOwnError(Monotone(a, [](double x) { return 1 / std::sqrt(x); }), kTwoUlp, arithmetic);
}

Bounded Exp(Bounded a, const Arithmetic& arithmetic) {
  return WithOwnError(Monotone(a, [](double x) { return std::exp(x); }), kFourUlp, arithmetic);
}

Bounded Log(Bounded a, const Arithmetic& arithmetic) {
  return WithOwnError(Monotone(a, [](double x) { return std::log(x); }), kFourUlp, arithmetic);
}

Bounded Tanh(Bounded a, const Arithmetic& arithmetic) {
  return WithOwnError(Monotone(a, [](double x) { return std::tanh(x); }), kFourUlp, arithmetic);
}

Bounded Sigmoid(Bounded a, const Arithmetic& arithmetic) {
  return WithOwnError(Monotone(a, SigmoidOf), kFourUlp, arithmetic);
}

Bounded Silu(Bounded a, const Arithmetic& arithmetic) {
  Bounded result = WithDip(a, -1.2784645427610738, SiluOf);
  // x times a sigmoid that is taken for 0.
  if (a.value < 0) result.bound -= a.value * arithmetic.smallest_normal;
  return WithOwnError(result, kFourUlp, arithmetic);
}

Bounded GeluErf(Bounded a, const Arithmetic& arithmetic) {
  const auto gelu = [](double x) { return 0.5 * x * (1 + ErfPart(x)); };
  // In 1 + erf the two cancel, and their errors stay.
  return WithOwnError(WithDip(a, -0.7517915246935645, gelu), kFourUlp, arithmetic,
                      std::fabs(a.value));
}

Bounded GeluTanh(Bounded a, const Arithmetic& arithmetic) {
  const auto gelu = [](double x) { return 0.5 * x * (1 + TanhPart(x)); };
  return WithOwnError(WithDip(a, -0.7524614, gelu), kFourUlp, arithmetic, std::fabs(a.value));
}

Bounded RoundToInteger(Bounded a) {
  return Monotone(a, [](double x) { return std::nearbyint(x); });
}

Bounded Literal(double value, const Arithmetic& arithmetic) {
  const double rounded =
      RoundTo(arithmetic.format.precision < 53 ? Dtype::kF32 : Dtype::kF64, value);
  if (!std::isfinite(rounded)) return {rounded, 0};
  return {value, std::fabs(value - rounded)};
}

Bounded BoundedSum::Total(double roundings, double unit, const FloatFormat& format,
                          bool may_be_exact) const {
  if (!(bounds_ < kInfinity)) return kAnything;
  if (!std::isfinite(sum_)) return {sum_, 0};
  const double value = sum_ + rest_;
  if (absolute_ + bounds_ == 0) return {value, 0};
  // Partial sums may be infinite where the sum is not.
  if (absolute_ + bounds_ >= format.overflow && std::fabs(value) < absolute_) {
    return std::isfinite(value) ? Unbounded(value) : kAnything;
  }
  const double step = std::ldexp(1, format.smallest_exponent - format.precision + 1);
  const bool is_exact = may_be_exact && bounds_ == 0 && granularity_ >= step &&
                        absolute_ < std::ldexp(granularity_, format.precision);
  if (is_exact) return {value, 0};
  return {value, bounds_ + roundings * (unit * (absolute_ + bounds_) + step)};
}

}  // namespace cotune
