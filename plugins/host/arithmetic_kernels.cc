#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "plugins/host/element_kernel_tables.h"
#include "plugins/host/sdk_names.h"

// Highway compiles this file once for each vector unit; the block below is seen several times.
// Units that add little over the next smaller one are left out: they would only lengthen the build.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/host/arithmetic_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "plugins/host/vector_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cotune::host::HWY_NAMESPACE {
namespace {

// ---- Operations of floats, on vectors.

struct Div {
  template <class D, class V>
  HWY_INLINE V operator()(D /*d*/, V a, V b) const {
    return hn::Div(a, b);
  }
};
// A comparison and not the instruction of the vector unit, since those differ in which of two zeros
// they take. NaN on either side is the result.
struct Min {
  template <class D, class V>
  HWY_INLINE V operator()(D /*d*/, V a, V b) const {
    return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
  }
};
struct Neg {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a) const {
    return hn::Xor(a, hn::SignBit(d));
  }
};
struct Abs {
  template <class D, class V>
  HWY_INLINE V operator()(D /*d*/, V a) const {
    return hn::Abs(a);
  }
};
struct Sqrt {
  template <class D, class V>
  HWY_INLINE V operator()(D /*d*/, V a) const {
    return hn::Sqrt(a);
  }
};
struct Rsqrt {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a) const {
    return hn::Div(hn::Set(d, 1), hn::Sqrt(a));
  }
};
struct Round {
  template <class D, class V>
  HWY_INLINE V operator()(D /*d*/, V a) const {
    // Some units round by way of an integer, which has no -0.
    return hn::IfThenElse(hn::IsNaN(a), a, hn::CopySign(hn::Round(a), a));
  }
};

template <typename T, class Function>
void Unary(const ElementArguments& a) {
  UnaryVectors<T>(a, Function());
}
template <typename T, class Function>
void Binary(const ElementArguments& a) {
  BinaryVectors<T>(a, Function());
}
template <typename T>
void ClampFloats(const ElementArguments& a) {
  const hn::ScalableTag<T> d;
  const auto low = hn::Set(d, static_cast<T>(a.constants[0]));
  const auto high = hn::Set(d, static_cast<T>(a.constants[1]));
  UnaryVectors<T>(a, [&](auto /*d*/, auto x) HWY_ATTR {
    const auto raised = hn::IfThenElse(hn::Lt(x, low), low, x);
    return hn::IfThenElse(hn::Gt(raised, high), high, raised);
  });
}

// ---- Operations on single elements.

template <typename T>
void Less(const ElementArguments& a) {
  EachTwo<uint8_t, T>(a, [](T x, T y) { return static_cast<uint8_t>(x < y); });
}
template <typename T>
void Equal(const ElementArguments& a) {
  EachTwo<uint8_t, T>(a, [](T x, T y) { return static_cast<uint8_t>(x == y); });
}
template <typename T>
void Where(const ElementArguments& a) {
  const auto* condition = static_cast<const uint8_t*>(a.from[0]);
  const auto* x = static_cast<const T*>(a.from[1]);
  const auto* y = static_cast<const T*>(a.from[2]);
  auto* to = static_cast<T*>(a.to);
  for (size_t i = 0; i < a.count; ++i) {
    to[i] = condition[i * a.step[0]] != 0 ? x[i * a.step[1]] : y[i * a.step[2]];
  }
}

// Integers wrap around, so they are computed without a sign, and never in a promoted type that
// overflows.
template <typename T>
using Unsigned = std::conditional_t<sizeof(T) < 4, uint32_t, std::make_unsigned_t<T>>;
template <typename T, uint32_t kKind>
void IntegerTwo(const ElementArguments& a) {
  using U = Unsigned<T>;
  EachTwo<T, T>(a, [](T x, T y) -> T {
    if constexpr (kKind == COTUNE_NODE_ADD) return static_cast<T>(U(x) + U(y));
    if constexpr (kKind == COTUNE_NODE_SUB) return static_cast<T>(U(x) - U(y));
    if constexpr (kKind == COTUNE_NODE_MUL) return static_cast<T>(U(x) * U(y));
    if constexpr (kKind == COTUNE_NODE_MIN) return y < x ? y : x;
    return x < y ? y : x;
  });
}
template <typename T, uint32_t kKind>
void IntegerOne(const ElementArguments& a) {
  using U = Unsigned<T>;
  EachOne<T, T>(a, [](T x) -> T {
    if constexpr (kKind == COTUNE_NODE_NEG) return static_cast<T>(U(0) - U(x));
    if constexpr (kKind == COTUNE_NODE_ABS) return x < T(0) ? static_cast<T>(U(0) - U(x)) : x;
    return x < T(0) ? T(0) : x;
  });
}

template <typename T>
void ClampIntegers(const ElementArguments& a) {
  const T low = IntegerFromFloat<T>(std::ceil(a.constants[0]));
  const T high = IntegerFromFloat<T>(std::floor(a.constants[1]));
  EachOne<T, T>(a, [&](T x) {
    const T raised = x < low ? low : x;
    return raised > high ? high : raised;
  });
}

// ---- Tables.

template <typename T>
ElementKernel FindOfFloats(uint32_t kind) {
  switch (kind) {
    case COTUNE_NODE_ADD:
      return Binary<T, Add>;
    case COTUNE_NODE_SUB:
      return Binary<T, Sub>;
    case COTUNE_NODE_MUL:
      return Binary<T, Mul>;
    case COTUNE_NODE_DIV:
      return Binary<T, Div>;
    case COTUNE_NODE_MIN:
      return Binary<T, Min>;
    case COTUNE_NODE_MAX:
      return Binary<T, Max>;
    case COTUNE_NODE_NEG:
      return Unary<T, Neg>;
    case COTUNE_NODE_ABS:
      return Unary<T, Abs>;
    case COTUNE_NODE_RELU:
      return Unary<T, Relu>;
    case COTUNE_NODE_SQRT:
      return Unary<T, Sqrt>;
    case COTUNE_NODE_RSQRT:
      return Unary<T, Rsqrt>;
    case COTUNE_NODE_ROUND:
      return Unary<T, Round>;
    case COTUNE_NODE_CLAMP:
      return ClampFloats<T>;
    default:
      return nullptr;
  }
}

template <typename T>
ElementKernel FindOfIntegers(uint32_t kind) {
  switch (kind) {
    case COTUNE_NODE_ADD:
      return IntegerTwo<T, COTUNE_NODE_ADD>;
    case COTUNE_NODE_SUB:
      return IntegerTwo<T, COTUNE_NODE_SUB>;
    case COTUNE_NODE_MUL:
      return IntegerTwo<T, COTUNE_NODE_MUL>;
    case COTUNE_NODE_MIN:
      return IntegerTwo<T, COTUNE_NODE_MIN>;
    case COTUNE_NODE_MAX:
      return IntegerTwo<T, COTUNE_NODE_MAX>;
    case COTUNE_NODE_NEG:
      return IntegerOne<T, COTUNE_NODE_NEG>;
    case COTUNE_NODE_ABS:
      return IntegerOne<T, COTUNE_NODE_ABS>;
    case COTUNE_NODE_RELU:
      return IntegerOne<T, COTUNE_NODE_RELU>;
    case COTUNE_NODE_CLAMP:
      return ClampIntegers<T>;
    default:
      return nullptr;
  }
}

template <typename T>
ElementKernel FindOfLane(uint32_t kind) {
  if (kind == COTUNE_NODE_LESS) return Less<T>;
  if (kind == COTUNE_NODE_EQUAL) return Equal<T>;
  if (kind == COTUNE_NODE_WHERE) return Where<T>;
  if constexpr (std::is_integral_v<T>) {
    return FindOfIntegers<T>(kind);
  } else {
    return FindOfFloats<T>(kind);
  }
}

ElementKernel FindArithmetic(uint32_t kind, Lane lane) {
  return WithLane(lane, [&](auto t) { return FindOfLane<decltype(t)>(kind); });
}

}  // namespace
}  // namespace cotune::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cotune::host {

HWY_EXPORT(FindArithmetic);

ElementKernel FindArithmeticKernel(uint32_t kind, Lane lane) {
  return HWY_DYNAMIC_DISPATCH(FindArithmetic)(kind, lane);
}

}  // namespace cotune::host
#endif  // HWY_ONCE
