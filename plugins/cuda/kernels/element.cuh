// Elements of the type and the reduction that this unit is compiled for: COTUNE_DTYPE_* and
// COTUNE_REDUCTION_* (neither: bytes that are only moved).
#pragma once

#include "prelude.cuh"

namespace cotune::cuda {

// ---- Types: how many elements a pack has, and what they are added up in ----

#if defined(COTUNE_DTYPE_F16) || defined(COTUNE_DTYPE_BF16)
using Accumulator = float;
constexpr int kElementBytes = 2;
#elif defined(COTUNE_DTYPE_F32)
using Accumulator = float;
constexpr int kElementBytes = 4;
#elif defined(COTUNE_DTYPE_F64)
using Accumulator = double;
constexpr int kElementBytes = 8;
#elif defined(COTUNE_DTYPE_I32)
using Accumulator = int;
constexpr int kElementBytes = 4;
#elif defined(COTUNE_DTYPE_I64)
using Accumulator = long long;
constexpr int kElementBytes = 8;
#elif defined(COTUNE_DTYPE_U8)
using Accumulator = unsigned int;
constexpr int kElementBytes = 1;
#else
#error "compile with -DCOTUNE_DTYPE_..."
#endif
constexpr int kPackBytes = 16;
constexpr int kPackElements = kPackBytes / kElementBytes;

#if defined(COTUNE_DTYPE_F16)
__device__ __forceinline__ float Widen(unsigned short bits) { return FloatFromF16(bits); }
__device__ __forceinline__ unsigned int NarrowPair(float low, float high) {
  return F16PairFromFloats(low, high);
}
__device__ __forceinline__ unsigned int AddPairs(unsigned int a, unsigned int b) {
  return AddF16Pairs(a, b);
}
#elif defined(COTUNE_DTYPE_BF16)
__device__ __forceinline__ float Widen(unsigned short bits) {
  return __uint_as_float(static_cast<unsigned int>(bits) << 16);
}
__device__ __forceinline__ unsigned int NarrowPair(float low, float high) {
  return Bf16PairFromFloats(low, high);
}
__device__ __forceinline__ unsigned int AddPairs(unsigned int a, unsigned int b) {
  return AddBf16Pairs(a, b);
}
#endif

// Element i of a pack. i is a constant wherever this is used, so nothing is indexed at run time.
__device__ __forceinline__ Accumulator Get(const Pack& p, int i) {
#if defined(COTUNE_DTYPE_F16) || defined(COTUNE_DTYPE_BF16)
  return Widen(static_cast<unsigned short>(p.word[i / 2] >> (i % 2 * 16)));
#elif defined(COTUNE_DTYPE_F32)
  return __uint_as_float(p.word[i]);
#elif defined(COTUNE_DTYPE_F64)
  return __hiloint2double(static_cast<int>(p.word[2 * i + 1]), static_cast<int>(p.word[2 * i]));
#elif defined(COTUNE_DTYPE_I32)
  return static_cast<int>(p.word[i]);
#elif defined(COTUNE_DTYPE_I64)
  return static_cast<long long>(static_cast<unsigned long long>(p.word[2 * i + 1]) << 32 |
                                p.word[2 * i]);
#else
  return p.word[i / 4] >> (i % 4 * 8) & 0xFFu;
#endif
}

__device__ __forceinline__ Pack FromElements(const Accumulator (&values)[kPackElements]) {
  Pack p;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
#if defined(COTUNE_DTYPE_F16) || defined(COTUNE_DTYPE_BF16)
    p.word[w] = NarrowPair(values[2 * w], values[2 * w + 1]);
#elif defined(COTUNE_DTYPE_F32)
    p.word[w] = __float_as_uint(values[w]);
#elif defined(COTUNE_DTYPE_F64)
    p.word[w] = static_cast<unsigned int>(w % 2 == 0 ? __double2loint(values[w / 2])
                                                     : __double2hiint(values[w / 2]));
#elif defined(COTUNE_DTYPE_I32)
    p.word[w] = static_cast<unsigned int>(values[w]);
#elif defined(COTUNE_DTYPE_I64)
    p.word[w] =
        static_cast<unsigned int>(static_cast<unsigned long long>(values[w / 2]) >> (w % 2 * 32));
#else
    p.word[w] = (values[4 * w] & 0xFFu) | (values[4 * w + 1] & 0xFFu) << 8 |
                (values[4 * w + 2] & 0xFFu) << 16 | (values[4 * w + 3] & 0xFFu) << 24;
#endif
  }
  return p;
}

// ---- Reductions ----

// A NaN among the operands of min and max is the result.
__device__ __forceinline__ Accumulator Combine(Accumulator a, Accumulator b) {
#if defined(COTUNE_REDUCTION_PRODUCT)
  return a * b;
#elif defined(COTUNE_REDUCTION_MIN)
  return a < b || a != a ? a : b;
#elif defined(COTUNE_REDUCTION_MAX)
  return a > b || a != a ? a : b;
#else
  return a + b;
#endif
}

// After the last operand. Integers divide what is left after wrapping around, toward zero.
__device__ __forceinline__ Accumulator Finish(Accumulator sum) {
#if defined(COTUNE_REDUCTION_AVERAGE) && defined(COTUNE_DTYPE_U8)
  return (sum & 0xFFu) / COTUNE_WORLD_SIZE;
#elif defined(COTUNE_REDUCTION_AVERAGE)
  return sum / COTUNE_WORLD_SIZE;
#else
  return sum;
#endif
}

// The packs of all ranks in rank order, so that every rank gets the same bits: `own` at the place
// of `rank`, `others` (ranks in ascending order without it) around it.
__device__ __forceinline__ Pack ReduceInRankOrder(const Pack& own,
                                                  const Pack (&others)[COTUNE_WORLD_SIZE - 1],
                                                  int rank) {
#if COTUNE_WORLD_SIZE == 2 && defined(COTUNE_REDUCTION_SUM) && \
    (defined(COTUNE_DTYPE_F16) || defined(COTUNE_DTYPE_BF16))
  // Both orders give the same bits.
  Pack sum;
#pragma unroll
  for (int w = 0; w < 4; ++w) sum.word[w] = AddPairs(own.word[w], others[0].word[w]);
  return sum;
#else
  Accumulator total[kPackElements];
#pragma unroll
  for (int r = 0; r < COTUNE_WORLD_SIZE; ++r) {
    Pack operand = own;
    // Both indexes are constants: a choice between registers.
    if (r < rank) operand = others[r < COTUNE_WORLD_SIZE - 1 ? r : 0];
    if (r > rank) operand = others[r > 0 ? r - 1 : 0];
#pragma unroll
    for (int i = 0; i < kPackElements; ++i) {
      const Accumulator value = Get(operand, i);
      total[i] = r == 0 ? value : Combine(total[i], value);
    }
  }
#pragma unroll
  for (int i = 0; i < kPackElements; ++i) total[i] = Finish(total[i]);
  return FromElements(total);
#endif
}

}  // namespace cotune::cuda
