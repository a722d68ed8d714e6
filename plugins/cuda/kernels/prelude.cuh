// The machine under the kernels: memory accesses of system scope, time, launch order.
#pragma once

#include "kernel_abi.h"

namespace cotune::cuda {

// How often a thread that waits looks for its data before it looks at anything else: some
// microseconds.
constexpr unsigned int kPollsPerLook = 1024;

// 16 bytes, the unit of every exchange.
struct alignas(16) Pack {
  unsigned int word[4];
};

// Relaxed accesses of system scope: each half is single-copy atomic (of vectors PTX promises it for
// the elements only), and no other access is ordered by them. Readers look at every half, so
// nothing more is needed.
__device__ __forceinline__ Pack LoadRelaxed(const void* from) {
  Pack p;
  asm volatile(
      "{ .reg .b64 low, high;\n"
      "ld.relaxed.sys.global.v2.b64 {low, high}, [%4];\n"
      "mov.b64 {%0, %1}, low;\n"
      "mov.b64 {%2, %3}, high; }"
      : "=r"(p.word[0]), "=r"(p.word[1]), "=r"(p.word[2]), "=r"(p.word[3])
      : "l"(from)
      : "memory");
  return p;
}

__device__ __forceinline__ void StoreRelaxed(void* to, const Pack& p) {
  asm volatile(
      "{ .reg .b64 low, high;\n"
      "mov.b64 low, {%1, %2};\n"
      "mov.b64 high, {%3, %4};\n"
      "st.relaxed.sys.global.v2.b64 [%0], {low, high}; }" ::"l"(to),
      "r"(p.word[0]), "r"(p.word[1]), "r"(p.word[2]), "r"(p.word[3])
      : "memory");
}

// The same for 8 bytes.
__device__ __forceinline__ unsigned long long LoadRelaxedHalf(const void* from) {
  unsigned long long value;
  asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}

__device__ __forceinline__ void StoreRelaxedHalf(void* to, unsigned long long value) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
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
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(p.word[0]), "r"(p.word[1]),
               "r"(p.word[2]), "r"(p.word[3])
               : "memory");
}

// The same for 8 bytes.
__device__ __forceinline__ unsigned long long LoadPlainHalf(const void* from) {
  unsigned long long value;
  asm volatile("ld.global.u64 %0, [%1];" : "=l"(value) : "l"(from));
  return value;
}

__device__ __forceinline__ void StorePlainHalf(void* to, unsigned long long value) {
  asm volatile("st.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

// Parts of a pack, where it is not aligned or not complete: an access or none, and no branch, so
// that many are on their way at once.
__device__ __forceinline__ unsigned int LoadWordIf(bool is_there, const void* from) {
  unsigned int value = 0;
  asm volatile(
      "{ .reg .pred is_there;\n"
      "setp.ne.u32 is_there, %1, 0;\n"
      "@is_there ld.global.u32 %0, [%2]; }"
      : "+r"(value)
      : "r"(static_cast<unsigned int>(is_there)), "l"(from));
  return value;
}

__device__ __forceinline__ unsigned int LoadShortIf(bool is_there, const void* from) {
  unsigned short value = 0;
  asm volatile(
      "{ .reg .pred is_there;\n"
      "setp.ne.u32 is_there, %1, 0;\n"
      "@is_there ld.global.u16 %0, [%2]; }"
      : "+h"(value)
      : "r"(static_cast<unsigned int>(is_there)), "l"(from));
  return value;
}

__device__ __forceinline__ unsigned int LoadByteIf(bool is_there, const void* from) {
  unsigned int value = 0;
  asm volatile(
      "{ .reg .pred is_there;\n"
      "setp.ne.u32 is_there, %1, 0;\n"
      "@is_there ld.global.u8 %0, [%2]; }"
      : "+r"(value)
      : "r"(static_cast<unsigned int>(is_there)), "l"(from));
  return value;
}

__device__ __forceinline__ void StoreWordIf(bool is_there, void* to, unsigned int value) {
  asm volatile(
      "{ .reg .pred is_there;\n"
      "setp.ne.u32 is_there, %0, 0;\n"
      "@is_there st.global.u32 [%1], %2; }" ::"r"(static_cast<unsigned int>(is_there)),
      "l"(to), "r"(value)
      : "memory");
}

__device__ __forceinline__ void StoreShortIf(bool is_there, void* to, unsigned int value) {
  asm volatile(
      "{ .reg .pred is_there;\n"
      "setp.ne.u32 is_there, %0, 0;\n"
      "@is_there st.global.u16 [%1], %2; }" ::"r"(static_cast<unsigned int>(is_there)),
      "l"(to), "h"(static_cast<unsigned short>(value))
      : "memory");
}

__device__ __forceinline__ void StoreByteIf(bool is_there, void* to, unsigned int value) {
  asm volatile(
      "{ .reg .pred is_there;\n"
      "setp.ne.u32 is_there, %0, 0;\n"
      "@is_there st.global.u8 [%1], %2; }" ::"r"(static_cast<unsigned int>(is_there)),
      "l"(to), "r"(value)
      : "memory");
}

// Data for a peer that is there once a flag that is released later was seen.
__device__ __forceinline__ void StoreToPeer(void* to, const Pack& p) { StorePlain(to, p); }

// A peer's data, after its flag was seen. Read once: nothing is kept in L1.
__device__ __forceinline__ Pack LoadFromPeer(const void* from) {
  Pack p;
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(p.word[0]), "=r"(p.word[1]), "=r"(p.word[2]), "=r"(p.word[3])
               : "l"(from)
               : "memory");
  return p;
}

// Flags between ranks. A release orders what its block did before the barrier that the thread has
// come from.
__device__ __forceinline__ void StoreRelease(unsigned long long* to, unsigned long long value) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}

__device__ __forceinline__ unsigned long long LoadAcquire(const unsigned long long* from) {
  unsigned long long value;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}

// Returns zero, because blocks have one dimension; the compiler only knows that the value may
// differ between threads. It keeps a word that all threads of a block load from the same address in
// a uniform register, and the instruction that moves the word there waits for memory, often far in
// front of the first use. An address that depends on this zero keeps the word in the registers of
// each thread.
__device__ __forceinline__ unsigned int ZeroOfThread() {
  unsigned int zero;
  asm("mov.u32 %0, %%tid.z;" : "=r"(zero));
  return zero;
}

__device__ __forceinline__ unsigned int LoadWord(const void* from) {
  unsigned int value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
// Reads host memory that the device maps. It takes a microsecond, and the GPU does some 30 million
// of these loads a second, whatever the number of threads.
__device__ __forceinline__ unsigned int LoadHostWord(const void* from) { return LoadWord(from); }

struct WordPair {
  unsigned int first, second;
};
__device__ __forceinline__ WordPair LoadWordPair(const void* from) {
  WordPair pair;
  asm volatile("ld.relaxed.sys.global.v2.u32 {%0, %1}, [%2];"
               : "=r"(pair.first), "=r"(pair.second)
               : "l"(from)
               : "memory");
  return pair;
}

__device__ __forceinline__ void StoreWord(void* to, unsigned int value) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ __forceinline__ unsigned long long GlobalTimerNs() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// Reads a word of each 64 bytes of a kernel's arguments, a line of the constant cache. A thread
// uses a part of long arguments (a bucket's) only, so that their first line is enough: reading all
// lines took 0.2 us of a call of 6.
template <typename Arguments>
__device__ __forceinline__ unsigned int ReadEachLine(const Arguments& a) {
  constexpr unsigned int kWordsOfLine = 16;
  constexpr bool kIsLong = sizeof(Arguments) > 5 * 4 * kWordsOfLine;
  constexpr unsigned int kWords = kIsLong ? kWordsOfLine : sizeof(Arguments) / 4;
  const auto* const words = reinterpret_cast<const unsigned int*>(&a);
  unsigned int read = words[kWords - 1];
#pragma unroll
  for (unsigned int w = 0; w < kWords; w += kWordsOfLine) read ^= words[w];
  return read;
}
// The address of a rank's own memory as well: the next instruction after the wait needs it.
__device__ __forceinline__ unsigned int ReadEachLine(const KernelArguments& a) {
  const auto own = reinterpret_cast<unsigned long long>(a.arena[a.rank]);
  return ReadEachLine<KernelArguments>(a) ^ static_cast<unsigned int>(own);
}

// Programmatic dependent launch: the next kernel of the stream may take its place now, and this one
// touches no memory before the kernel in front of it is done. While it waits for that, it brings
// its arguments into the constant cache, where each miss would otherwise delay the call: 0.05 us of
// a small all_reduce, 0.1 to 0.2 us of one with operations. Only an instruction that the compiler
// cannot drop makes it read them; this one sleeps for no time if the words are one number by
// chance.
template <typename... Arguments>
__device__ __forceinline__ void BeginLaunch(const Arguments&... arguments) {
#if COTUNE_PDL
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const unsigned int read = (ReadEachLine(arguments) ^ ...);
  asm volatile(
      "{ .reg .pred is_seldom;\n"
      "setp.eq.u32 is_seldom, %0, 0x9E3779B9;\n"
      "@is_seldom nanosleep.u32 0; }" ::"r"(read));
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Memory that the threads of a block share; every call in a kernel gives the same.
template <int kBytes>
__device__ __forceinline__ unsigned char* BlockMemory() {
  __shared__ alignas(16) unsigned char memory[kBytes];
  return memory;
}

// ---- Clusters: blocks that run at the same time, and write into each other's block memory ----

// A gate is 8 bytes of block memory. It opens when the bytes that its block expects have been
// pushed, and closes again for the next ones. One thread makes the gates of its block, and fences
// them before the cluster meets for the first time.
__device__ __forceinline__ unsigned int BlockAddress(const void* at) {
  return static_cast<unsigned int>(__cvta_generic_to_shared(at));
}
__device__ __forceinline__ void InitGate(void* gate) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(BlockAddress(gate)) : "memory");
}
__device__ __forceinline__ void FenceGates() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// The cluster's barrier, in two halves. All of its threads call both, or none.
__device__ __forceinline__ void ArriveAtCluster() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
}
__device__ __forceinline__ void WaitForCluster() {
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
// By one thread of a block: how many bytes come before the gate opens next.
__device__ __forceinline__ void ExpectBytes(void* gate, unsigned int bytes) {
  asm volatile(
      "{ .reg .b64 state;\n"
      "mbarrier.arrive.expect_tx.shared::cta.b64 state, [%0], %1; }" ::"r"(BlockAddress(gate)),
      "r"(bytes)
      : "memory");
}
__device__ __forceinline__ unsigned int AddressInBlock(const void* at, unsigned int block) {
  unsigned int mapped;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(mapped) : "r"(BlockAddress(at)), "r"(block));
  return mapped;
}
// Stores the value in the memory of a block of the cluster, at the place that `at` is in the memory
// of this one, and counts it at the gate there.
__device__ __forceinline__ void PushToBlock(unsigned int block, float* at, float value,
                                            void* gate) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
          AddressInBlock(at, block)),
      "r"(__float_as_uint(value)), "r"(AddressInBlock(gate, block))
      : "memory");
}
__device__ __forceinline__ void PushToBlock(unsigned int block, double* at, double value,
                                            void* gate) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(
          AddressInBlock(at, block)),
      "l"(__double_as_longlong(value)), "r"(AddressInBlock(gate, block))
      : "memory");
}
// parity: of how often the gate has opened before.
__device__ __forceinline__ void WaitAtGate(void* gate, unsigned int parity) {
  unsigned int is_open = 0;
  while (is_open == 0) {
    asm volatile(
        "{ .reg .pred is_open;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 is_open, [%1], %2;\n"
        "selp.u32 %0, 1, 0, is_open; }"
        : "=r"(is_open)
        : "r"(BlockAddress(gate)), "r"(parity)
        : "memory");
  }
}

// The value of the lane of the warp whose index differs in the bit `offset`. All lanes take part.
__device__ __forceinline__ float ShuffleXor(float value, int offset) {
  return __shfl_xor_sync(~0u, value, offset);
}
__device__ __forceinline__ double ShuffleXor(double value, int offset) {
  return __shfl_xor_sync(~0u, value, offset);
}
// The value of the first of each kLanes lanes, a power of two. All lanes take part.
template <int kLanes>
__device__ __forceinline__ unsigned int OfFirstLane(unsigned int value) {
  return __shfl_sync(~0u, value, 0, kLanes);
}
// What lanes of a warp did before it, all of them see behind it.
__device__ __forceinline__ void SyncWarp() { __syncwarp(); }

// To f32, in the direction of zero.
__device__ __forceinline__ float FloatTowardZero(double value) {
  float result;
  asm("cvt.rz.f32.f64 %0, %1;" : "=f"(result) : "d"(value));
  return result;
}
__device__ __forceinline__ float FloatTowardZero(long long value) {
  float result;
  asm("cvt.rz.f32.s64 %0, %1;" : "=f"(result) : "l"(value));
  return result;
}
__device__ __forceinline__ float FloatTowardZero(int value) {
  float result;
  asm("cvt.rz.f32.s32 %0, %1;" : "=f"(result) : "r"(value));
  return result;
}

// The 16-bit floats: bits to f32 and back, to the nearest, ties to even.
__device__ __forceinline__ float FloatFromF16(unsigned short bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}

// The compiler joins two of these whose results are stored side by side. Alone each one takes
// eight times as long as a conversion of a pair.
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

// A pair in one word, the first number in its lower half.
__device__ __forceinline__ unsigned int F16PairFromFloats(float low, float high) {
  unsigned int pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ unsigned int Bf16PairFromFloats(float low, float high) {
  unsigned int pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// The sums of two pairs of 16-bit floats, rounded once. That gives the bits of sums in f32 that are
// rounded afterwards, because f32 has more than twice as many digits.
__device__ __forceinline__ unsigned int AddF16Pairs(unsigned int a, unsigned int b) {
  unsigned int sums;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sums) : "r"(a), "r"(b));
  return sums;
}
__device__ __forceinline__ unsigned int AddBf16Pairs(unsigned int a, unsigned int b) {
  constexpr unsigned int kOnes = 0x3F803F80;
  unsigned int sums;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sums) : "r"(a), "r"(kOnes), "r"(b));
  return sums;
}

// All ones in the halves of a pair of 16-bit floats that are below zero. (Neither -0 nor NaN is.)
__device__ __forceinline__ unsigned int F16PairsBelowZero(unsigned int pair) {
  unsigned int mask;
  asm("set.lt.u32.f16x2 %0, %1, %2;" : "=r"(mask) : "r"(pair), "r"(0));
  return mask;
}
__device__ __forceinline__ unsigned int Bf16PairsBelowZero(unsigned int pair) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  unsigned int mask;
  asm("set.lt.u32.bf16x2 %0, %1, %2;" : "=r"(mask) : "r"(pair), "r"(0));
  return mask;
#else
  const unsigned int low = __uint_as_float(pair << 16) < 0.0f ? 0x0000FFFFu : 0u;
  return low | (__uint_as_float(pair & 0xFFFF0000u) < 0.0f ? 0xFFFF0000u : 0u);
#endif
}

// f32 to the 8-bit floats, by GPUs that do it: to the nearest, ties to even, and the largest number
// for what is beyond it.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define COTUNE_CONVERTS_FLOAT8 1
__device__ __forceinline__ unsigned int F8E4M3FromFloat(float value) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  return pair;
}
__device__ __forceinline__ unsigned int F8E5M2FromFloat(float value) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  return pair;
}
#endif

}  // namespace cotune::cuda
