// The operations of parts, on lanes. Units are compiled without contraction, so that a product
// which is added is rounded twice, as everywhere. Sums, differences and products of floats are the
// operators of the language.
#pragma once

#include "part_element.cuh"

namespace cotune::cuda {

// Integers wrap around, so they are computed without a sign.
template <typename T>
struct UnsignedOf {
  using Type = unsigned int;
};
template <>
struct UnsignedOf<long long> {
  using Type = unsigned long long;
};
template <typename T>
using Unsigned = typename UnsignedOf<T>::Type;

template <typename T>
__device__ __forceinline__ T Add(T x, T y) {
  return static_cast<T>(static_cast<Unsigned<T>>(x) + static_cast<Unsigned<T>>(y));
}
template <typename T>
__device__ __forceinline__ T Sub(T x, T y) {
  return static_cast<T>(static_cast<Unsigned<T>>(x) - static_cast<Unsigned<T>>(y));
}
template <typename T>
__device__ __forceinline__ T Mul(T x, T y) {
  return static_cast<T>(static_cast<Unsigned<T>>(x) * static_cast<Unsigned<T>>(y));
}

// x / y with the same bits. The machine divides floats in a few instructions, but calls a
// subroutine for the whole warp where an operand or the quotient of one thread is near an end of
// the range, zeros included. What is quantized often is zero, so zeros are divided as something
// else.
__device__ __forceinline__ float Quotient(float x, float y) {
  constexpr float kStandIn = 1.0f / (1 << 30);  // is finite when divided by any y but zero
  const bool is_zero = x == 0.0f;
  const float quotient = (is_zero ? kStandIn : x) / y;
  // A zero with the sign of x / y; NaN where y is zero or NaN.
  return is_zero ? x * quotient : quotient;
}
__device__ __forceinline__ double Quotient(double x, double y) { return x / y; }

// NaN on either side is the result; of two zeros it is the second.
template <typename T>
__device__ __forceinline__ T Min(T x, T y) {
  return x < y || x != x ? x : y;
}
template <typename T>
__device__ __forceinline__ T Max(T x, T y) {
  return x > y || x != x ? x : y;
}

template <typename T>
__device__ __forceinline__ T Neg(T x) {
  if constexpr (kIsFloat<T>) {
    return -x;
  } else {
    return Sub(static_cast<T>(0), x);
  }
}
__device__ __forceinline__ float Abs(float x) { return fabsf(x); }
__device__ __forceinline__ double Abs(double x) { return fabs(x); }
template <typename T>
__device__ __forceinline__ T Abs(T x) {
  return x < static_cast<T>(0) ? Neg(x) : x;
}
template <typename T>
__device__ __forceinline__ T Relu(T x) {
  return x < static_cast<T>(0) ? static_cast<T>(0) : x;
}
template <typename T>
__device__ __forceinline__ T Clamp(T x, T low, T high) {
  const T raised = x < low ? low : x;
  return raised > high ? high : raised;
}

template <typename T>
__device__ __forceinline__ unsigned char Less(T x, T y) {
  return x < y ? 1 : 0;
}
template <typename T>
__device__ __forceinline__ unsigned char Equal(T x, T y) {
  return x == y ? 1 : 0;
}
template <typename T>
__device__ __forceinline__ T Where(unsigned char condition, T x, T y) {
  return condition != 0 ? x : y;
}

// ---- Functions of f32 and f64. Those of the compiler are within 2 ulp. ----

__device__ __forceinline__ float Exp(float x) { return expf(x); }
__device__ __forceinline__ double Exp(double x) { return exp(x); }
__device__ __forceinline__ float Log(float x) { return logf(x); }
__device__ __forceinline__ double Log(double x) { return log(x); }
__device__ __forceinline__ float Tanh(float x) { return tanhf(x); }
__device__ __forceinline__ double Tanh(double x) { return tanh(x); }
__device__ __forceinline__ float Erf(float x) { return erff(x); }
__device__ __forceinline__ double Erf(double x) { return erf(x); }
__device__ __forceinline__ float Sqrt(float x) { return sqrtf(x); }
__device__ __forceinline__ double Sqrt(double x) { return sqrt(x); }
__device__ __forceinline__ float Round(float x) { return rintf(x); }
__device__ __forceinline__ double Round(double x) { return rint(x); }

template <typename T>
__device__ __forceinline__ T Rsqrt(T x) {
  return static_cast<T>(1) / Sqrt(x);
}

// exp of what is not positive, so that neither end of the range loses its value to an infinity.
template <typename T>
__device__ __forceinline__ T Sigmoid(T x) {
  const T e = Exp(-Abs(x));
  return (x < static_cast<T>(0) ? e : static_cast<T>(1)) / (static_cast<T>(1) + e);
}
template <typename T>
__device__ __forceinline__ T Silu(T x) {
  return x * Sigmoid(x);
}
template <typename T>
__device__ __forceinline__ T GeluErf(T x) {
  const T half = static_cast<T>(0.5) * x;
  return half * (static_cast<T>(1) + Erf(x * static_cast<T>(0.70710678118654752440)));
}
template <typename T>
__device__ __forceinline__ T GeluTanh(T x) {
  const T cube = x * x * x;
  const T inner = static_cast<T>(0.79788456080286535588) * (x + static_cast<T>(0.044715) * cube);
  return static_cast<T>(0.5) * x * (static_cast<T>(1) + Tanh(inner));
}

}  // namespace cotune::cuda
