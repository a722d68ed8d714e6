#include <cmath>
#include <cstdint>
#include <limits>

#include "plugins/host/element_kernel_tables.h"
#include "plugins/host/sdk_names.h"

// Highway compiles this file once for each vector unit; the block below is seen several times.
// Units that add little over the next smaller one are left out: they would only lengthen the build.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/host/function_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "plugins/host/vector_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cotune::host::HWY_NAMESPACE {
namespace {

// Highway's functions hold for a range; the selections around them add what lies outside of it.

template <class D, class V>
HWY_INLINE V ExpOf(D d, V x) {
  const V e = hn::Exp(d, hn::Min(x, hn::Set(d, 88.8f)));
  const V bounded = hn::IfThenElse(hn::Gt(x, hn::Set(d, 88.8f)),
                                   hn::Set(d, std::numeric_limits<float>::infinity()), e);
  return hn::IfThenElse(hn::IsNaN(x), x, bounded);
}
struct Exp {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return ExpOf(d, x);
  }
};
struct Log {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const V zero = hn::Zero(d);
    V log = hn::Log(d, x);
    log = hn::IfThenElse(hn::Eq(x, zero), hn::Set(d, -kInfinity), log);
    log = hn::IfThenElse(hn::Lt(x, zero), hn::Set(d, std::numeric_limits<float>::quiet_NaN()), log);
    return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::Eq(x, hn::Set(d, kInfinity))), x, log);
  }
};
template <class D, class V>
HWY_INLINE V TanhOf(D d, V x) {
  const V limit = hn::Set(d, 20.0f);
  const V bounded = hn::Max(hn::Min(x, limit), hn::Neg(limit));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Tanh(d, bounded));
}
struct Tanh {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return TanhOf(d, x);
  }
};
// exp of what is not positive, so that neither end of the range loses its value to an infinity.
template <class D, class V>
HWY_INLINE V SigmoidOf(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  const V e = ExpOf(d, hn::Neg(hn::Abs(x)));
  return hn::Div(hn::IfThenElse(hn::Lt(x, hn::Zero(d)), e, one), hn::Add(one, e));
}
struct Sigmoid {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return SigmoidOf(d, x);
  }
};
struct Silu {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    return hn::Mul(x, SigmoidOf(d, x));
  }
};
// Below 0.927: x + x p(x^2); above: 1 - exp(q(|x|)), where q is the logarithm of erfc and is
// fitted up to 4, where erf is 1 in f32. Both polynomials interpolate at Chebyshev's points, with
// errors below 5e-10 and 2e-8. element_program_test bounds what gelu makes of it.
template <class D, class V>
HWY_INLINE V ErfOf(D d, V x) {
  const V size = hn::Min(hn::Abs(x), hn::Set(d, 4.0f));
  const V square = hn::Mul(size, size);
  V p = hn::Set(d, 8.32218357e-05f);
  for (const float c : {-0.000813183142f, 0.00520012528f, -0.0268590581f, 0.112836897f,
                        -0.376126349f, 0.128379166f}) {
    p = hn::MulAdd(p, square, hn::Set(d, c));
  }
  const V near = hn::MulAdd(p, size, size);
  V q = hn::Set(d, 1.61290404e-06f);
  for (const float c : {-4.55671398e-05f, 0.000592566386f, -0.00473924587f, 0.0263618734f,
                        -0.109973118f, -0.631942689f, -1.13016331f, 0.000302380475f}) {
    q = hn::MulAdd(q, size, hn::Set(d, c));
  }
  const V far = hn::Sub(hn::Set(d, 1.0f), hn::Exp(d, q));
  const V erf = hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.927f)), near, far);
  return hn::IfThenElse(hn::IsNaN(x), x, hn::CopySign(erf, x));
}
struct GeluErf {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V erf = ErfOf(d, hn::Mul(x, hn::Set(d, 0.70710678118654752f)));
    return hn::Mul(hn::Mul(hn::Set(d, 0.5f), x), hn::Add(hn::Set(d, 1.0f), erf));
  }
};
struct GeluTanh {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V x) const {
    const V cube = hn::Mul(hn::Mul(x, x), x);
    const V inner =
        hn::Mul(hn::Set(d, 0.79788456080286536f), hn::Add(x, hn::Mul(hn::Set(d, 0.044715f), cube)));
    return hn::Mul(hn::Mul(hn::Set(d, 0.5f), x), hn::Add(hn::Set(d, 1.0f), TanhOf(d, inner)));
  }
};

template <typename T, class Function>
void Unary(const ElementArguments& a) {
  UnaryVectors<T>(a, Function());
}

ElementKernel FindFunctionOfF32(uint32_t kind) {
  switch (kind) {
    case COTUNE_NODE_EXP:
      return Unary<float, Exp>;
    case COTUNE_NODE_LOG:
      return Unary<float, Log>;
    case COTUNE_NODE_TANH:
      return Unary<float, Tanh>;
    case COTUNE_NODE_SIGMOID:
      return Unary<float, Sigmoid>;
    case COTUNE_NODE_SILU:
      return Unary<float, Silu>;
    case COTUNE_NODE_GELU_ERF:
      return Unary<float, GeluErf>;
    case COTUNE_NODE_GELU_TANH:
      return Unary<float, GeluTanh>;
    default:
      return nullptr;
  }
}

// The standard library's functions: doubles are rare in programs.
double SigmoidOfDouble(double x) {
  const double e = std::exp(-std::abs(x));
  return (x < 0 ? e : 1) / (1 + e);
}
template <uint32_t kKind>
void FunctionOfF64(const ElementArguments& a) {
  EachOne<double, double>(a, [](double x) {
    if constexpr (kKind == COTUNE_NODE_EXP) return std::exp(x);
    if constexpr (kKind == COTUNE_NODE_LOG) return std::log(x);
    if constexpr (kKind == COTUNE_NODE_TANH) return std::tanh(x);
    if constexpr (kKind == COTUNE_NODE_SIGMOID) return SigmoidOfDouble(x);
    if constexpr (kKind == COTUNE_NODE_SILU) return x * SigmoidOfDouble(x);
    if constexpr (kKind == COTUNE_NODE_GELU_ERF) {
      return 0.5 * x * (1 + std::erf(x * 0.70710678118654752440));
    }
    return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
  });
}
ElementKernel FindFunctionOfF64(uint32_t kind) {
  switch (kind) {
    case COTUNE_NODE_EXP:
      return FunctionOfF64<COTUNE_NODE_EXP>;
    case COTUNE_NODE_LOG:
      return FunctionOfF64<COTUNE_NODE_LOG>;
    case COTUNE_NODE_TANH:
      return FunctionOfF64<COTUNE_NODE_TANH>;
    case COTUNE_NODE_SIGMOID:
      return FunctionOfF64<COTUNE_NODE_SIGMOID>;
    case COTUNE_NODE_SILU:
      return FunctionOfF64<COTUNE_NODE_SILU>;
    case COTUNE_NODE_GELU_ERF:
      return FunctionOfF64<COTUNE_NODE_GELU_ERF>;
    case COTUNE_NODE_GELU_TANH:
      return FunctionOfF64<COTUNE_NODE_GELU_TANH>;
    default:
      return nullptr;
  }
}

}  // namespace
}  // namespace cotune::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cotune::host {

HWY_EXPORT(FindFunctionOfF32);
HWY_EXPORT(FindFunctionOfF64);

ElementKernel FindFunctionKernel(uint32_t kind, Lane lane) {
  if (lane == Lane::kF32) return HWY_DYNAMIC_DISPATCH(FindFunctionOfF32)(kind);
  if (lane == Lane::kF64) return HWY_DYNAMIC_DISPATCH(FindFunctionOfF64)(kind);
  return nullptr;
}

}  // namespace cotune::host
#endif  // HWY_ONCE
