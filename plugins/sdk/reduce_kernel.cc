#include "plugins/sdk/reduce_kernel.h"

#include <cstring>
#include <type_traits>

#include "plugins/sdk/float16.h"

// Highway compiles this file once for each vector unit; the block below is seen several times.
// Units that add little over the next smaller one are left out: they would only lengthen the build.
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "plugins/sdk/reduce_kernel.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
//
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace cotune::sdk::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// Unaligned load and store. The scalar target dereferences its pointer, which only aligned pointers
// allow, so it goes through a copy.
template <class D>
HWY_INLINE hn::Vec<D> LoadLanes(D d, const hn::TFromD<D>* from) {
#if HWY_TARGET == HWY_SCALAR
  hn::TFromD<D> lane;
  std::memcpy(&lane, from, sizeof(lane));
  return hn::LoadU(d, &lane);
#else
  return hn::LoadU(d, from);
#endif
}

template <class D>
HWY_INLINE void StoreLanes(hn::Vec<D> value, D d, hn::TFromD<D>* to) {
#if HWY_TARGET == HWY_SCALAR
  hn::TFromD<D> lane;
  hn::StoreU(value, d, &lane);
  std::memcpy(to, &lane, sizeof(lane));
#else
  hn::StoreU(value, d, to);
#endif
}

// How elements of a type are loaded into and stored from vectors of the type they are summed in.
template <typename T>
struct Native {
  using Sum = T;
  using Element = T;
  using D = hn::ScalableTag<T>;
  using V = hn::Vec<D>;
  static HWY_INLINE V LoadElements(const T* from) { return LoadLanes(D(), from); }
  static HWY_INLINE void StoreElements(V value, T* to) { StoreLanes(value, D(), to); }
};

struct Bf16 {
  using Sum = float;
  using Element = uint16_t;
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
  static HWY_INLINE V LoadElements(const uint16_t* from) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::RebindToUnsigned<D> d32;
    return hn::BitCast(D(), hn::ShiftLeft<16>(hn::PromoteTo(d32, LoadLanes(d16, from))));
  }
  static HWY_INLINE void StoreElements(V value, uint16_t* to) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::RebindToUnsigned<D> d32;
    const hn::RebindToSigned<D> d32_signed;
    const auto bits = hn::BitCast(d32, value);
    const auto top = hn::ShiftRight<16>(bits);
    const auto odd = hn::And(top, hn::Set(d32, 1u));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, hn::Set(d32, 0x7fffu))));
    const auto is_nan = hn::RebindMask(d32, hn::IsNaN(value));
    const auto result = hn::IfThenElse(is_nan, hn::Or(top, hn::Set(d32, 0x40u)), rounded);
    // The value fits 16 bits, so the saturating narrowing keeps every bit of it.
    StoreLanes(hn::DemoteTo(d16, hn::BitCast(d32_signed, result)), d16, to);
  }
};

struct F16 {
  using Sum = float;
  using Element = uint16_t;
  using D = hn::ScalableTag<float>;
  using V = hn::Vec<D>;
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX3_DL
  static HWY_INLINE V LoadElements(const uint16_t* from) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::Rebind<hwy::float16_t, D> half;
    return hn::PromoteTo(D(), hn::BitCast(half, LoadLanes(d16, from)));
  }
  static HWY_INLINE void StoreElements(V value, uint16_t* to) {
    const hn::Rebind<uint16_t, D> d16;
    const hn::Rebind<hwy::float16_t, D> half;
    StoreLanes(hn::BitCast(d16, hn::DemoteTo(half, value)), d16, to);
  }
#else  // no instruction that rounds to nearest: one lane at a time
  static HWY_INLINE V LoadElements(const uint16_t* from) {
    HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
    for (size_t i = 0; i < hn::Lanes(D()); ++i) {
      uint16_t bits;
      std::memcpy(&bits, from + i, sizeof(bits));
      lanes[i] = F32FromF16(bits);
    }
    return hn::Load(D(), lanes);
  }
  static HWY_INLINE void StoreElements(V value, uint16_t* to) {
    HWY_ALIGN float lanes[HWY_MAX_BYTES / sizeof(float)];
    hn::Store(value, D(), lanes);
    for (size_t i = 0; i < hn::Lanes(D()); ++i) {
      const uint16_t bits = F16FromF32(lanes[i]);
      std::memcpy(to + i, &bits, sizeof(bits));
    }
  }
#endif
};

struct AddVectors {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    return hn::Add(a, b);
  }
};
struct MultiplyVectors {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    return hn::Mul(a, b);
  }
};
// A NaN on either side is the result; the hardware's minimum would drop one of them.
template <bool kMinimum>
struct ExtremeVectors {
  template <class V>
  static HWY_INLINE V Apply(V a, V b) {
    const auto extreme = kMinimum ? hn::Min(a, b) : hn::Max(a, b);
    if constexpr (std::is_floating_point_v<hn::TFromV<V>>) {
      return hn::IfThenElse(hn::IsNaN(a), a, hn::IfThenElse(hn::IsNaN(b), b, extreme));
    } else {
      return extreme;
    }
  }
};

template <class Type>
HWY_INLINE typename Type::V LoadAt(const void* array, bool partial, size_t index) {
  if (partial)
    return LoadLanes(typename Type::D(), static_cast<const typename Type::Sum*>(array) + index);
  return Type::LoadElements(static_cast<const typename Type::Element*>(array) + index);
}

template <class Type>
HWY_INLINE void StoreAt(typename Type::V value, void* array, bool partial, size_t index) {
  if (partial) {
    StoreLanes(value, typename Type::D(), static_cast<typename Type::Sum*>(array) + index);
  } else {
    Type::StoreElements(value, static_cast<typename Type::Element*>(array) + index);
  }
}

template <class Type, class Op, size_t kVectors>
HWY_INLINE void ReduceAt(const ReduceArguments& arguments, size_t index) {
  using V = typename Type::V;
  const typename Type::D d;
  const size_t lanes = hn::Lanes(d);
  V sum[kVectors];
  const bool first_partial = (arguments.source_partial_mask & 1) != 0;
  for (size_t v = 0; v < kVectors; ++v) {
    sum[v] = LoadAt<Type>(arguments.sources[0], first_partial, index + v * lanes);
  }
  for (uint32_t s = 1; s < arguments.source_count; ++s) {
    const bool partial = ((arguments.source_partial_mask >> s) & 1) != 0;
    for (size_t v = 0; v < kVectors; ++v) {
      sum[v] = Op::Apply(sum[v], LoadAt<Type>(arguments.sources[s], partial, index + v * lanes));
    }
  }
  if constexpr (std::is_floating_point_v<typename Type::Sum>) {
    if (arguments.divisor != 1) {
      const V divisor = hn::Set(d, static_cast<typename Type::Sum>(arguments.divisor));
      for (size_t v = 0; v < kVectors; ++v) sum[v] = hn::Div(sum[v], divisor);
    }
  }
  for (size_t v = 0; v < kVectors; ++v) {
    const size_t at = index + v * lanes;
    StoreAt<Type>(sum[v], arguments.destination, arguments.destination_partial, at);
    if (arguments.second_destination != nullptr) {
      StoreAt<Type>(sum[v], arguments.second_destination, arguments.second_destination_partial, at);
    }
  }
}

template <class Type>
size_t WidthOf(bool partial) {
  return partial ? sizeof(typename Type::Sum) : sizeof(typename Type::Element);
}

// The last elements, fewer than a vector, go through padded copies so that they meet the very same
// instructions as all others.
template <class Type, class Op>
void ReduceRest(const ReduceArguments& arguments, size_t begin) {
  using Sum = typename Type::Sum;
  constexpr size_t kLanes = HWY_MAX_BYTES / sizeof(Sum);
  const size_t rest = arguments.count - begin;
  HWY_ALIGN Sum copies[kMaxSources][kLanes];
  HWY_ALIGN Sum result[kLanes];
  HWY_ALIGN Sum second_result[kLanes];
  ReduceArguments padded = arguments;
  for (uint32_t s = 0; s < arguments.source_count; ++s) {
    const size_t width = WidthOf<Type>(((arguments.source_partial_mask >> s) & 1) != 0);
    std::memset(copies[s], 0, sizeof(copies[s]));
    std::memcpy(copies[s], static_cast<const char*>(arguments.sources[s]) + begin * width,
                rest * width);
    padded.sources[s] = copies[s];
  }
  padded.destination = result;
  if (arguments.second_destination != nullptr) padded.second_destination = second_result;
  ReduceAt<Type, Op, 1>(padded, 0);
  const size_t width = WidthOf<Type>(arguments.destination_partial);
  std::memcpy(static_cast<char*>(arguments.destination) + begin * width, result, rest * width);
  if (arguments.second_destination != nullptr) {
    const size_t second_width = WidthOf<Type>(arguments.second_destination_partial);
    std::memcpy(static_cast<char*>(arguments.second_destination) + begin * second_width,
                second_result, rest * second_width);
  }
}

template <class Type, class Op>
void ReduceByVectors(const ReduceArguments& arguments) {
  const size_t lanes = hn::Lanes(typename Type::D());
  size_t index = 0;
  for (; index + 4 * lanes <= arguments.count; index += 4 * lanes) {
    ReduceAt<Type, Op, 4>(arguments, index);
  }
  for (; index + lanes <= arguments.count; index += lanes) {
    ReduceAt<Type, Op, 1>(arguments, index);
  }
  if (index < arguments.count) ReduceRest<Type, Op>(arguments, index);
}

struct AddIntegers {
  template <typename T>
  static T Apply(T a, T b) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(static_cast<U>(a) + static_cast<U>(b)));
  }
};
struct MultiplyIntegers {
  template <typename T>
  static T Apply(T a, T b) {
    using U = std::conditional_t<sizeof(T) < 4, uint32_t, std::make_unsigned_t<T>>;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  }
};

// Integer work without a vector instruction on every target (division, 8- and 64-bit products):
// blocks in the first-level cache, in loops that the compiler vectorises where it can.
template <typename T, class Op>
void ReduceByBlocks(const ReduceArguments& arguments) {
  constexpr size_t kBlock = 2048 / sizeof(T);
  T sum[kBlock];
  T next[kBlock];
  for (size_t begin = 0; begin < arguments.count; begin += kBlock) {
    const size_t count = arguments.count - begin < kBlock ? arguments.count - begin : kBlock;
    const size_t offset = begin * sizeof(T);
    std::memcpy(sum, static_cast<const char*>(arguments.sources[0]) + offset, count * sizeof(T));
    for (uint32_t s = 1; s < arguments.source_count; ++s) {
      std::memcpy(next, static_cast<const char*>(arguments.sources[s]) + offset, count * sizeof(T));
      for (size_t i = 0; i < count; ++i) sum[i] = Op::Apply(sum[i], next[i]);
    }
    if (arguments.divisor != 1) {
      for (size_t i = 0; i < count; ++i)
        sum[i] = static_cast<T>(sum[i] / static_cast<T>(arguments.divisor));
    }
    std::memcpy(static_cast<char*>(arguments.destination) + offset, sum, count * sizeof(T));
    if (arguments.second_destination != nullptr) {
      std::memcpy(static_cast<char*>(arguments.second_destination) + offset, sum,
                  count * sizeof(T));
    }
  }
}

template <class Type>
ReduceKernel FindVectorKernel(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
    case Reduction::kAverage:
      return ReduceByVectors<Type, AddVectors>;
    case Reduction::kProduct:
      return ReduceByVectors<Type, MultiplyVectors>;
    case Reduction::kMin:
      return ReduceByVectors<Type, ExtremeVectors<true>>;
    case Reduction::kMax:
      return ReduceByVectors<Type, ExtremeVectors<false>>;
  }
  return nullptr;
}

template <typename T>
ReduceKernel FindIntegerKernel(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return ReduceByVectors<Native<T>, AddVectors>;
    case Reduction::kAverage:
      return ReduceByBlocks<T, AddIntegers>;
    case Reduction::kProduct:
      return ReduceByBlocks<T, MultiplyIntegers>;
    case Reduction::kMin:
      return ReduceByVectors<Native<T>, ExtremeVectors<true>>;
    case Reduction::kMax:
      return ReduceByVectors<Native<T>, ExtremeVectors<false>>;
  }
  return nullptr;
}

ReduceKernel FindKernelOfTarget(ElementType type, Reduction reduction) {
  switch (type) {
    case ElementType::kF32:
      return FindVectorKernel<Native<float>>(reduction);
    case ElementType::kF64:
      return FindVectorKernel<Native<double>>(reduction);
    case ElementType::kF16:
      return FindVectorKernel<F16>(reduction);
    case ElementType::kBf16:
      return FindVectorKernel<Bf16>(reduction);
    case ElementType::kI32:
      return FindIntegerKernel<int32_t>(reduction);
    case ElementType::kI64:
      return FindIntegerKernel<int64_t>(reduction);
    case ElementType::kU8:
      return FindIntegerKernel<uint8_t>(reduction);
  }
  return nullptr;
}

}  // namespace
}  // namespace cotune::sdk::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace cotune::sdk {

HWY_EXPORT(FindKernelOfTarget);

ReduceKernel FindReduceKernel(ElementType type, Reduction reduction) {
  return HWY_DYNAMIC_DISPATCH(FindKernelOfTarget)(type, reduction);
}

}  // namespace cotune::sdk
#endif  // HWY_ONCE
