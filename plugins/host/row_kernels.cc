#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "plugins/host/element_kernels.h"
#include "plugins/host/sdk_names.h"

// Highway compiles this file once for each vector unit; the block below is seen several times.
// Units that add little over the next smaller one are left out: they would only lengthen the build.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/host/row_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "plugins/host/vector_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cotune::host::HWY_NAMESPACE {
namespace {

struct SumOfTwo {
  template <typename T>
  static constexpr T kIdentity = T(-0.0);
  template <typename T>
  static HWY_INLINE T One(T a, T b) {
    return a + b;
  }
  using Vector = Add;
};
struct MaxOfTwo {
  template <typename T>
  static constexpr T kIdentity = -std::numeric_limits<T>::infinity();
  template <typename T>
  static HWY_INLINE T One(T a, T b) {
    return a > b || std::isnan(a) ? a : b;
  }
  using Vector = Max;
};

struct Itself {
  template <typename T>
  HWY_INLINE T operator()(T x) const {
    return x;
  }
};
struct Square {
  HWY_INLINE float operator()(float x) const { return x * x; }
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return hn::Mul(x, x);
  }
};

template <class Of, typename T, class Change = Itself>
void Leaves(const ElementArguments& a) {
  const auto* from = static_cast<const T*>(a.from[0]);
  auto* to = static_cast<T*>(a.to);
  const Change change;
  size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
  const hn::ScalableTag<T> d;
  const typename Of::Vector two;
  const size_t lanes = hn::Lanes(d);
  for (; i + kLeafColumns * lanes <= a.count; i += kLeafColumns * lanes) {
    // Every fourth column, from either half of the vectors' columns; even ones begin a leaf.
    hn::Vec<decltype(d)> low[4];
    hn::Vec<decltype(d)> high[4];
    hn::LoadInterleaved4(d, from + i, low[0], low[1], low[2], low[3]);
    hn::LoadInterleaved4(d, from + i + 4 * lanes, high[0], high[1], high[2], high[3]);
    for (int k = 0; k < 4; ++k) {
      low[k] = change(low[k]);
      high[k] = change(high[k]);
    }
    auto sum = hn::ConcatEven(d, high[0], low[0]);
    for (int k = 1; k < 4; ++k) sum = two(d, sum, hn::ConcatEven(d, high[k], low[k]));
    for (int k = 0; k < 4; ++k) sum = two(d, sum, hn::ConcatOdd(d, high[k], low[k]));
    hn::StoreU(sum, d, to + i / kLeafColumns);
  }
#endif
  for (; i < a.count; i += kLeafColumns) {
    const size_t columns = std::min(kLeafColumns, a.count - i);
    T sum = change(from[i]);
    for (size_t k = 1; k < columns; ++k) sum = Of::One(sum, change(from[i + k]));
    to[i / kLeafColumns] = sum;
  }
}

template <class Of, typename T>
void Fold(const ElementArguments& a) {
  const hn::ScalableTag<T> d;
  const typename Of::Vector two;
  const size_t lanes = hn::Lanes(d);
  auto* leaves = static_cast<T*>(a.to);
  size_t half = std::bit_ceil(a.count);
  std::fill(leaves + a.count, leaves + half, Of::template kIdentity<T>);
  for (half /= 2; half >= lanes; half /= 2) {
    for (size_t i = 0; i < half; i += lanes) {
      hn::Store(two(d, hn::Load(d, leaves + i), hn::LoadU(d, leaves + half + i)), d, leaves + i);
    }
  }
  for (; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) leaves[i] = Of::One(leaves[i], leaves[half + i]);
  }
  std::fill_n(leaves, kSplatBytes / sizeof(T), T(leaves[0]));
}

ElementKernel FindSquareLeaf() { return Leaves<SumOfTwo, float, Square>; }
ElementKernel FindReduction(uint32_t kind, Lane lane, bool folds) {
  const bool is_sum = kind == COTUNE_NODE_ROW_SUM;
  if (lane == Lane::kF32 && folds) return is_sum ? Fold<SumOfTwo, float> : Fold<MaxOfTwo, float>;
  if (lane == Lane::kF32) return is_sum ? Leaves<SumOfTwo, float> : Leaves<MaxOfTwo, float>;
  if (lane != Lane::kF64) return nullptr;
  if (folds) return is_sum ? Fold<SumOfTwo, double> : Fold<MaxOfTwo, double>;
  return is_sum ? Leaves<SumOfTwo, double> : Leaves<MaxOfTwo, double>;
}

}  // namespace
}  // namespace cotune::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cotune::host {

HWY_EXPORT(FindReduction);
HWY_EXPORT(FindSquareLeaf);

ElementKernel FindLeafKernel(uint32_t kind, Lane lane) {
  return HWY_DYNAMIC_DISPATCH(FindReduction)(kind, lane, false);
}
ElementKernel FindSquareLeafKernel() { return HWY_DYNAMIC_DISPATCH(FindSquareLeaf)(); }
ElementKernel FindFoldKernel(uint32_t kind, Lane lane) {
  return HWY_DYNAMIC_DISPATCH(FindReduction)(kind, lane, true);
}

}  // namespace cotune::host
#endif  // HWY_ONCE
