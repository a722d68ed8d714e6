// The dtypes of a part: how an element lies in memory, and the lane that it is computed in. Floats
// but f64 are computed in f32.
#pragma once

#include "prelude.cuh"

namespace cotune::cuda {

// Less than a type's smallest number and more than its largest one are clamped; NaN gives 0.
template <typename To, typename From>
__device__ __forceinline__ To IntegerFromFloat(From value) {
  constexpr bool kIsSigned = static_cast<To>(-1) < static_cast<To>(0);
  constexpr int kBits = 8 * static_cast<int>(sizeof(To)) - (kIsSigned ? 1 : 0);
  constexpr From kEnd = static_cast<From>(1ull << (kBits - 1)) * 2;
  constexpr From kLow = kIsSigned ? -kEnd : static_cast<From>(0);
  constexpr To kLargest = static_cast<To>((1ull << kBits) - 1);
  if (value != value) return 0;
  if (value <= kLow) return kIsSigned ? static_cast<To>(-kLargest - 1) : static_cast<To>(0);
  return value >= kEnd ? kLargest : static_cast<To>(value);
}

template <typename T>
constexpr bool kIsFloat = static_cast<T>(0.5) != static_cast<T>(0);

// From lane to lane.
template <typename To, typename From>
__device__ __forceinline__ To Cast(From value) {
  if constexpr (kIsFloat<From> && !kIsFloat<To>) {
    return IntegerFromFloat<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

// The f32 next to a number in the direction of zero, with its last bit set where that is inexact:
// rounding this f32 to fewer bits gives what rounding the number itself gives.
template <typename From>
__device__ __forceinline__ float ToOdd(From value) {
  const float toward_zero = FloatTowardZero(value);
  const unsigned int bits = __float_as_uint(toward_zero);
  const bool is_exact = static_cast<From>(toward_zero) == value;
  return __uint_as_float(is_exact ? bits : bits | 1u);
}

// The floats of 8 bits: kMantissaBits, and the code that follows the largest number, which is
// infinity where the format has one.
template <int kMantissaBits, unsigned int kBeyond, unsigned int kNan, bool kHasInfinity>
struct Float8 {
  using Lane = float;
  static constexpr int kBytes = 1;
  static constexpr int kShift = 23 - kMantissaBits;
  static constexpr unsigned int kBias = (1u << (6 - kMantissaBits)) - 1;
  static constexpr unsigned int kBiases = 127 - kBias;

  static __device__ __forceinline__ float FromBits(unsigned int code) {
    const unsigned int magnitude = code & 0x7Fu;
    const unsigned int normal = (magnitude << kShift) + (kBiases << 23);
    // A subnormal is a whole number of the smallest one.
    constexpr unsigned int kSmallest = (kBiases + 1 - kMantissaBits) << 23;
    const float subnormal = static_cast<float>(magnitude) * __uint_as_float(kSmallest);
    unsigned int bits = magnitude < 1u << kMantissaBits ? __float_as_uint(subnormal) : normal;
    if (kHasInfinity && magnitude == kBeyond) bits = 0x7F800000u;
    if (magnitude > (kHasInfinity ? kBeyond : kBeyond - 1)) bits = 0x7FC00000u;
    return __uint_as_float(bits | (code & 0x80u) << 24);
  }
  // To nearest, ties to even; the next code behind the largest number for what is beyond it.
  static __device__ __forceinline__ unsigned int ToBits(float value) {
    const unsigned int bits = __float_as_uint(value);
    const unsigned int magnitude = bits & 0x7FFFFFFFu;
#ifdef COTUNE_CONVERTS_FLOAT8
    const bool is_e4m3 = kMantissaBits == 3;
    const unsigned int within = is_e4m3 ? F8E4M3FromFloat(value) : F8E5M2FromFloat(value);
    // Half way from the largest number to the next code, to which ties go where it is even.
    constexpr unsigned int kHalfWay =
        ((kBeyond - 1) << kShift) + (kBiases << 23) + (1u << (kShift - 1));
    if (magnitude < kHalfWay + kBeyond % 2) return within;
    return (magnitude > 0x7F800000u ? kNan : kBeyond) | (bits >> 24 & 0x80u);
#else
    const unsigned int odd = magnitude >> kShift & 1u;
    const unsigned int normal =
        ((magnitude + odd + ((1u << (kShift - 1)) - 1)) >> kShift) - (kBiases << kMantissaBits);
    // The last bit of this number is the smallest subnormal, so that the sum is rounded to it.
    constexpr unsigned int kRounder = (kBiases + 1 + kShift) << 23;
    const unsigned int subnormal =
        __float_as_uint(__uint_as_float(magnitude) + __uint_as_float(kRounder)) - kRounder;
    unsigned int code = magnitude < (kBiases + 1) << 23 ? subnormal : normal;
    if (code > kBeyond) code = kBeyond;
    if (value != value) code = kNan;
    return code | (bits >> 24 & 0x80u);
#endif
  }
};
using F8E4M3 = Float8<3, 0x7F, 0x7F, false>;
using F8E5M2 = Float8<2, 0x7C, 0x7F, true>;

struct F32 {
  using Lane = float;
  static constexpr int kBytes = 4;
  static __device__ __forceinline__ float FromBits(unsigned int bits) {
    return __uint_as_float(bits);
  }
  static __device__ __forceinline__ unsigned int ToBits(float value) {
    return __float_as_uint(value);
  }
};

struct F16 {
  using Lane = float;
  static constexpr int kBytes = 2;
  static __device__ __forceinline__ float FromBits(unsigned int bits) {
    return FloatFromF16(static_cast<unsigned short>(bits));
  }
  static __device__ __forceinline__ unsigned int ToBits(float value) { return F16FromFloat(value); }
};

struct Bf16 {
  using Lane = float;
  static constexpr int kBytes = 2;
  static __device__ __forceinline__ float FromBits(unsigned int bits) {
    return __uint_as_float(bits << 16);
  }
  static __device__ __forceinline__ unsigned int ToBits(float value) {
    return Bf16FromFloat(value);
  }
};

struct F64 {
  using Lane = double;
  static constexpr int kBytes = 8;
  static __device__ __forceinline__ double FromBits(unsigned long long bits) {
    return __hiloint2double(static_cast<int>(bits >> 32), static_cast<int>(bits));
  }
  static __device__ __forceinline__ unsigned long long ToBits(double value) {
    return static_cast<unsigned long long>(static_cast<unsigned int>(__double2hiint(value))) << 32 |
           static_cast<unsigned int>(__double2loint(value));
  }
};

template <typename T, typename BitsOf>
struct Integer {
  using Lane = T;
  static constexpr int kBytes = static_cast<int>(sizeof(T));
  static __device__ __forceinline__ T FromBits(BitsOf bits) { return static_cast<T>(bits); }
  static __device__ __forceinline__ BitsOf ToBits(T value) {
    constexpr BitsOf kMask = static_cast<BitsOf>(~0ull >> (64 - 8 * kBytes));
    return static_cast<BitsOf>(value) & kMask;
  }
};
using I32 = Integer<int, unsigned int>;
using I64 = Integer<long long, unsigned long long>;
using U8 = Integer<unsigned char, unsigned int>;
using I8 = Integer<signed char, unsigned int>;

// The sums of two pairs of elements.
__device__ __forceinline__ unsigned int AddPairs(Bf16 /*dtype*/, unsigned int a, unsigned int b) {
  return AddBf16Pairs(a, b);
}
__device__ __forceinline__ unsigned int AddPairs(F16 /*dtype*/, unsigned int a, unsigned int b) {
  return AddF16Pairs(a, b);
}

// All ones in the elements of a pair that are below zero.
__device__ __forceinline__ unsigned int PairsBelowZero(Bf16 /*dtype*/, unsigned int pair) {
  return Bf16PairsBelowZero(pair);
}
__device__ __forceinline__ unsigned int PairsBelowZero(F16 /*dtype*/, unsigned int pair) {
  return F16PairsBelowZero(pair);
}

// The bits of a number that is stored and read again. (The compiler does not join conversions of
// such numbers to one of a pair, see prelude.cuh.)
template <class T>
__device__ __forceinline__ auto RoundedBitsOf(T /*dtype*/, typename T::Lane value) {
  return T::ToBits(value);
}
__device__ __forceinline__ unsigned int RoundedBitsOf(F16 /*dtype*/, float value) {
  return F16PairFromFloats(value, 0.0f);
}
// The upper half of an f32 is a bf16.
__device__ __forceinline__ unsigned int RoundedBitsOf(Bf16 /*dtype*/, float value) {
  return Bf16PairFromFloats(0.0f, value) >> 16;
}
template <class T>
__device__ __forceinline__ auto RoundedBits(typename T::Lane value) {
  return RoundedBitsOf(T(), value);
}

// The number nearest to a lane that the dtype can hold.
template <class T>
__device__ __forceinline__ float Rounded(float value) {
  return T::FromBits(RoundedBits<T>(value));
}

}  // namespace cotune::cuda
