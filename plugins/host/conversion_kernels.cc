#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "plugins/host/element_kernels.h"
#include "plugins/host/sdk_names.h"

// Highway compiles this file once for each vector unit; the block below is seen several times.
// Units that add little over the next smaller one are left out: they would only lengthen the build.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/host/conversion_kernels.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/highway.h"
#include "plugins/host/narrow_floats-inl.h"
#include "plugins/host/vector_loops-inl.h"

HWY_BEFORE_NAMESPACE();
namespace cotune::host::HWY_NAMESPACE {
namespace {

// ---- Casts.

template <typename To, typename From>
HWY_INLINE To CastOne(From value) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return IntegerFromFloat<To>(value);
  } else {
    return static_cast<To>(value);
  }
}
template <typename To, typename From>
void Cast(const ElementArguments& a) {
  if constexpr (std::is_same_v<To, From>) {
    // Most casts between floats change no lane, and are given the register that they read.
    if (a.to != a.from[0]) std::memcpy(a.to, a.from[0], a.count * sizeof(To));
  } else {
    EachOne<To, From>(a, [](From x) { return CastOne<To>(x); });
  }
}

// Nearest f32, unless that is inexact: then the one of the two neighbours whose last bit is set.
template <typename From>
HWY_INLINE float ToOdd(From value) {
  const auto nearest = static_cast<float>(value);
  const auto bits = std::bit_cast<uint32_t>(nearest);
  // x87's 64 bits of mantissa hold every f64 and every integer here.
  const auto exact = static_cast<long double>(value);
  const auto seen = static_cast<long double>(nearest);
  if (seen == exact || std::isnan(nearest) || (bits & 1u) != 0) return nearest;
  const bool grows = (exact > seen) == (exact > 0);  // away from zero
  return std::bit_cast<float>(grows ? bits + 1 : bits - 1);
}
template <typename From>
void CastToOdd(const ElementArguments& a) {
  EachOne<float, From>(a, [](From x) { return ToOdd(x); });
}

template <class Format>
void LoadNarrow(const ElementArguments& a) {
  const auto* from = static_cast<const typename Format::Element*>(a.from[0]);
  auto* to = static_cast<float*>(a.to);
  const size_t lanes = hn::Lanes(F32());
  size_t i = 0;
  for (; i + lanes <= a.count; i += lanes) hn::Store(Format::Load(from + i), F32(), to + i);
  for (; i < a.count; ++i) to[i] = Format::FromElement(from[i]);
}
template <class Format, bool kIsRounded = false>
void StoreNarrow(const ElementArguments& a) {
  const auto* from = static_cast<const float*>(a.from[0]);
  auto* to = static_cast<typename Format::Element*>(a.to);
  const size_t lanes = hn::Lanes(F32());
  size_t i = 0;
  for (; i + 2 * lanes <= a.count; i += 2 * lanes) {
    const auto first = hn::LoadU(F32(), from + i);
    const auto second = hn::LoadU(F32(), from + i + lanes);
    if constexpr (kIsRounded) {
      Format::StoreTwoRounded(first, second, to + i);
    } else {
      Format::StoreTwo(first, second, to + i);
    }
  }
  for (; i + lanes <= a.count; i += lanes) Format::Store(hn::LoadU(F32(), from + i), to + i);
  for (; i < a.count; ++i) to[i] = Format::ToElement(from[i]);
}
template <class Format>
void RoundNarrow(const ElementArguments& a) {
  UnaryVectors<float>(a, [](F32 /*d*/, auto x) HWY_ATTR { return Format::Rounded(x); });
}

template <typename T>
void Copy(const ElementArguments& a) {
  std::memcpy(a.to, a.from[0], a.count * sizeof(T));
}
template <typename T>
void Splat(const ElementArguments& a) {
  const T value = *static_cast<const T*>(a.from[0]);
  std::fill_n(static_cast<T*>(a.to), kSplatBytes / sizeof(T), value);
}

// ---- Tables.

ElementKernel FindCast(Lane from, Lane to, bool to_odd) {
  return WithLane(from, [&](auto f) -> ElementKernel {
    using From = decltype(f);
    if constexpr (sizeof(From) >= 4 && !std::is_same_v<From, float>) {
      if (to_odd && to == Lane::kF32) return CastToOdd<From>;
    }
    return WithLane(to, [&](auto t) -> ElementKernel { return Cast<decltype(t), From>; });
  });
}
ElementKernel FindCopy(sdk::ValueDtype dtype) {
  switch (sdk::ElementBytes(dtype)) {
    case 1:
      return Copy<uint8_t>;
    case 2:
      return Copy<uint16_t>;
    case 4:
      return Copy<uint32_t>;
    default:
      return Copy<uint64_t>;
  }
}
ElementKernel FindRound(sdk::ValueDtype dtype) {
  switch (dtype) {
    case sdk::ValueDtype::kF16:
      return RoundNarrow<F16>;
    case sdk::ValueDtype::kBf16:
      return RoundNarrow<Bf16>;
    case sdk::ValueDtype::kF8E4M3:
      return RoundNarrow<VectorsOfE4M3>;
    case sdk::ValueDtype::kF8E5M2:
      return RoundNarrow<VectorsOfE5M2>;
    default:
      return nullptr;
  }
}
ElementKernel FindMemory(sdk::ValueDtype dtype, bool loads) {
  switch (dtype) {
    case sdk::ValueDtype::kF16:
      return loads ? LoadNarrow<F16> : StoreNarrow<F16>;
    case sdk::ValueDtype::kBf16:
      return loads ? LoadNarrow<Bf16> : StoreNarrow<Bf16>;
    case sdk::ValueDtype::kF8E4M3:
      return loads ? LoadNarrow<VectorsOfE4M3> : StoreNarrow<VectorsOfE4M3>;
    case sdk::ValueDtype::kF8E5M2:
      return loads ? LoadNarrow<VectorsOfE5M2> : StoreNarrow<VectorsOfE5M2>;
    default:
      return WithLane(LaneOf(dtype), [](auto t) -> ElementKernel { return Copy<decltype(t)>; });
  }
}
// Other formats have no store of rounded lanes that is faster.
ElementKernel FindStoreRounded(sdk::ValueDtype dtype) {
  return dtype == sdk::ValueDtype::kBf16 ? StoreNarrow<Bf16, true> : FindMemory(dtype, false);
}
ElementKernel FindSplat(Lane lane) {
  return WithLane(lane, [](auto t) -> ElementKernel { return Splat<decltype(t)>; });
}

}  // namespace
}  // namespace cotune::host::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cotune::host {

HWY_EXPORT(FindCast);
HWY_EXPORT(FindRound);
HWY_EXPORT(FindMemory);
HWY_EXPORT(FindStoreRounded);
HWY_EXPORT(FindSplat);
HWY_EXPORT(FindCopy);

ElementKernel FindCastKernel(Lane from, Lane to, bool to_odd) {
  return HWY_DYNAMIC_DISPATCH(FindCast)(from, to, to_odd);
}
ElementKernel FindRoundKernel(sdk::ValueDtype dtype) {
  return HWY_DYNAMIC_DISPATCH(FindRound)(dtype);
}
ElementKernel FindLoadKernel(sdk::ValueDtype dtype) {
  return HWY_DYNAMIC_DISPATCH(FindMemory)(dtype, true);
}
ElementKernel FindStoreKernel(sdk::ValueDtype dtype) {
  return HWY_DYNAMIC_DISPATCH(FindMemory)(dtype, false);
}
ElementKernel FindStoreRoundedKernel(sdk::ValueDtype dtype) {
  return HWY_DYNAMIC_DISPATCH(FindStoreRounded)(dtype);
}
ElementKernel FindCopyKernel(sdk::ValueDtype dtype) {
  return HWY_DYNAMIC_DISPATCH(FindCopy)(dtype);
}
ElementKernel FindSplatKernel(Lane lane) { return HWY_DYNAMIC_DISPATCH(FindSplat)(lane); }

}  // namespace cotune::host
#endif  // HWY_ONCE
