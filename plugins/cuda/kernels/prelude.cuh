// The machine under the kernels: memory accesses of system scope, time, launch order.
#pragma once

#include "kernel_abi.h"

namespace cotune::cuda {

// 16 bytes, the unit of every exchange.
struct alignas(16) Pack {
  unsigned int word[4];
};

// Relaxed accesses of system scope: each 32-bit word is single-copy atomic, and no other access is
// ordered by them. Readers look at every word, so nothing more is needed.
__device__ __forceinline__ Pack LoadRelaxed(const void* from) {
  Pack p;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(p.word[0]), "=r"(p.word[1]), "=r"(p.word[2]), "=r"(p.word[3])
               : "l"(from)
               : "memory");
  return p;
}

__device__ __forceinline__ void StoreRelaxed(void* to, const Pack& p) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(p.word[0]),
               "r"(p.word[1]), "r"(p.word[2]), "r"(p.word[3])
               : "memory");
}

// The caller's buffers: read and written by this launch alone.
__device__ __forceinline__ Pack LoadPlain(const void* from) {
  Pack p;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(p.word[0]), "=r"(p.word[1]), "=r"(p.word[2]), "=r"(p.word[3])
               : "l"(from));
  return p;
}

__device__ __forceinline__ void StorePlain(void* to, const Pack& p) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(p.word[0]),
               "r"(p.word[1]), "r"(p.word[2]), "r"(p.word[3])
               : "memory");
}

__device__ __forceinline__ unsigned int LoadWord(const void* from) {
  unsigned int value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}

__device__ __forceinline__ unsigned long long GlobalTimerNs() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Programmatic dependent launch: the next kernel of the stream may take its place now, and this one
// touches no memory before the kernel in front of it is done.
__device__ __forceinline__ void BeginLaunch() {
#if COTUNE_PDL
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The 16-bit floats: bits to f32 and back, to the nearest, ties to even.
__device__ __forceinline__ float FloatFromF16(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

__device__ __forceinline__ unsigned short F16FromFloat(float value) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

__device__ __forceinline__ unsigned short Bf16FromFloat(float value) {
  unsigned short bits;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
  return bits;
}

}  // namespace cotune::cuda
