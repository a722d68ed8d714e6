// Loops of the element kernels over vectors and over single elements. Highway compiles this header
// once for each vector unit, inside of each file of kernels.
#if defined(COTUNE_PLUGINS_HOST_VECTOR_LOOPS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COTUNE_PLUGINS_HOST_VECTOR_LOOPS_INL_H_
#undef COTUNE_PLUGINS_HOST_VECTOR_LOOPS_INL_H_
#else
#define COTUNE_PLUGINS_HOST_VECTOR_LOOPS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "plugins/host/element_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace cotune::host::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
static_assert(HWY_MAX_BYTES <= kSplatBytes);

// ---- Whole vectors. An operand may be memory of the call, which is aligned to its elements only.

template <typename T, class Function>
HWY_INLINE void UnaryVectors(const ElementArguments& a, Function function) {
  const hn::ScalableTag<T> d;
  const auto* x = static_cast<const T*>(a.from[0]);
  auto* to = static_cast<T*>(a.to);
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < a.count; i += lanes) {
    hn::StoreU(function(d, hn::LoadU(d, x + i * a.step[0])), d, to + i);
  }
}

template <typename T, class Function>
HWY_INLINE void BinaryVectors(const ElementArguments& a, Function function) {
  const hn::ScalableTag<T> d;
  const auto* x = static_cast<const T*>(a.from[0]);
  const auto* y = static_cast<const T*>(a.from[1]);
  auto* to = static_cast<T*>(a.to);
  const size_t lanes = hn::Lanes(d);
  for (size_t i = 0; i < a.count; i += lanes) {
    hn::StoreU(function(d, hn::LoadU(d, x + i * a.step[0]), hn::LoadU(d, y + i * a.step[1])), d,
               to + i);
  }
}

// ---- Loops over single elements, which the compiler turns into vectors where it can.

template <typename To, typename From, class Function>
HWY_INLINE void EachOne(const ElementArguments& a, Function function) {
  const auto* x = static_cast<const From*>(a.from[0]);
  auto* to = static_cast<To*>(a.to);
  for (size_t i = 0; i < a.count; ++i) to[i] = function(x[i]);
}

// Splats are longer than any vector but shorter than a register, so each element of a splat is the
// one at 0.
template <typename To, typename From, class Function>
HWY_INLINE void EachTwo(const ElementArguments& a, Function function) {
  const auto* x = static_cast<const From*>(a.from[0]);
  const auto* y = static_cast<const From*>(a.from[1]);
  auto* to = static_cast<To*>(a.to);
  if (a.step[0] == 1 && a.step[1] == 1) {
    for (size_t i = 0; i < a.count; ++i) to[i] = function(x[i], y[i]);
  } else if (a.step[0] == 1) {
    const From second = y[0];
    for (size_t i = 0; i < a.count; ++i) to[i] = function(x[i], second);
  } else {
    const From first = x[0];
    for (size_t i = 0; i < a.count; ++i) to[i] = function(first, y[i * a.step[1]]);
  }
}

// Toward zero, clamped; NaN gives 0.
template <typename To, typename From>
HWY_INLINE To IntegerFromFloat(From value) {
  // Both bounds are powers of two (or zero), hence exact in every float.
  constexpr auto kLow = static_cast<From>(std::numeric_limits<To>::min());
  constexpr To kHalfBeyond = std::numeric_limits<To>::max() / 2 + 1;
  constexpr From kBeyond = static_cast<From>(kHalfBeyond) * From(2);
  if (!(value > kLow)) return value <= kLow ? std::numeric_limits<To>::min() : To(0);
  if (value >= kBeyond) return std::numeric_limits<To>::max();
  return static_cast<To>(value);
}

template <class Function>
auto WithLane(Lane lane, Function function) {
  if (lane == Lane::kF64) return function(double());
  if (lane == Lane::kI32) return function(int32_t());
  if (lane == Lane::kI64) return function(int64_t());
  if (lane == Lane::kU8) return function(uint8_t());
  if (lane == Lane::kI8) return function(int8_t());
  return function(float());
}

// ---- Operations of floats that several files of kernels have.

struct Add {
  template <class D, class V>
  HWY_INLINE V operator()(D /*d*/, V a, V b) const {
    return hn::Add(a, b);
  }
};
struct Sub {
  template <class D, class V>
  HWY_INLINE V operator()(D /*d*/, V a, V b) const {
    return hn::Sub(a, b);
  }
};
struct Mul {
  template <class D, class V>
  HWY_INLINE V operator()(D /*d*/, V a, V b) const {
    return hn::Mul(a, b);
  }
};
// A comparison and not the instruction of the vector unit, since those differ in which of two zeros
// they take. NaN on either side is the result.
struct Max {
  template <class D, class V>
  HWY_INLINE V operator()(D /*d*/, V a, V b) const {
    return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
  }
};
struct Relu {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a) const {
    return hn::IfThenElse(hn::Lt(a, hn::Zero(d)), hn::Zero(d), a);
  }
};

}  // namespace cotune::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // COTUNE_PLUGINS_HOST_VECTOR_LOOPS_INL_H_
