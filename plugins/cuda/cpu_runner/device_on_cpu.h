// prelude.cuh for the CPU: the same names, on C++ atomics and fibers. Kernel sources are compiled
// after it in place of prelude.cuh.
#ifndef COTUNE_PLUGINS_CUDA_CPU_RUNNER_DEVICE_ON_CPU_H_
#define COTUNE_PLUGINS_CUDA_CPU_RUNNER_DEVICE_ON_CPU_H_

#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "plugins/cuda/cpu_runner/fiber_scheduler.h"
#include "plugins/cuda/cpu_runner/float16_bits.h"
#include "plugins/cuda/cpu_runner/kernel_block.h"
#include "plugins/cuda/kernels/kernel_abi.h"
#include "plugins/cuda/kernels/part_abi.h"

#define __device__ inline
#define __global__
#define __forceinline__
#define __noinline__
#define __launch_bounds__(...)
#define __grid_constant__

namespace cotune::cuda::cpu {
struct Index {
  unsigned int x;
};
inline Index BlockIndex() { return {FiberScheduler::Place().block}; }
inline Index ThreadIndex() { return {FiberScheduler::Place().thread}; }
inline Index BlockCount() { return {FiberScheduler::Place().blocks}; }
inline Index ThreadCount() { return {FiberScheduler::Place().threads}; }

// Here, because the thread sanitizer has to see the access.
inline void WriteDelayed(const DelayedStore& store) {
  std::memcpy(store.to, store.word, sizeof(store.word));
}

template <typename T>
std::atomic_ref<T> AtomicAt(const void* at) {
  return std::atomic_ref<T>(*static_cast<T*>(const_cast<void*>(at)));
}
}  // namespace cotune::cuda::cpu

#define blockIdx (::cotune::cuda::cpu::BlockIndex())
#define threadIdx (::cotune::cuda::cpu::ThreadIndex())
#define gridDim (::cotune::cuda::cpu::BlockCount())
#define blockDim (::cotune::cuda::cpu::ThreadCount())

inline void __syncthreads() { ::cotune::cuda::cpu::SyncBlock(false); }
inline int __syncthreads_or(int value) {
  return ::cotune::cuda::cpu::SyncBlock(value != 0) ? 1 : 0;
}
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_system() { std::atomic_thread_fence(std::memory_order_seq_cst); }

inline unsigned int atomicAdd(unsigned int* at, unsigned int value) {
  return std::atomic_ref(*at).fetch_add(value, std::memory_order_acq_rel);
}
inline unsigned int atomicExch_system(unsigned int* at, unsigned int value) {
  return std::atomic_ref(*at).exchange(value, std::memory_order_acq_rel);
}
inline unsigned int atomicCAS_system(unsigned int* at, unsigned int expected, unsigned int value) {
  std::atomic_ref(*at).compare_exchange_strong(expected, value, std::memory_order_acq_rel);
  return expected;
}

inline float __uint_as_float(unsigned int bits) { return std::bit_cast<float>(bits); }
inline unsigned int __float_as_uint(float value) { return std::bit_cast<unsigned int>(value); }
inline double __hiloint2double(int high, int low) {
  return std::bit_cast<double>(static_cast<uint64_t>(static_cast<unsigned int>(high)) << 32 |
                               static_cast<unsigned int>(low));
}
inline int __double2loint(double value) {
  return static_cast<int>(std::bit_cast<uint64_t>(value) & 0xFFFFFFFFu);
}
inline int __double2hiint(double value) {
  return static_cast<int>(std::bit_cast<uint64_t>(value) >> 32);
}

namespace cotune::cuda {

// Short, because each poll lets all other threads run.
constexpr unsigned int kPollsPerLook = 64;

struct alignas(16) Pack {
  unsigned int word[4];
};

// The halves of a pack are moved one after the other, with other threads in between: the kernels
// may rely on 8 bytes that arrive whole, not on 16.
inline Pack LoadRelaxed(const void* from) {
  cpu::FiberScheduler::YieldSometimes();
  uint64_t half[2];
  half[0] = cpu::AtomicAt<uint64_t>(from).load(std::memory_order_relaxed);
  cpu::FiberScheduler::YieldSometimes();
  half[1] =
      cpu::AtomicAt<uint64_t>(static_cast<const char*>(from) + 8).load(std::memory_order_relaxed);
  return std::bit_cast<Pack>(half);
}

inline void StoreRelaxed(void* to, const Pack& p) {
  cpu::FiberScheduler::YieldSometimes();
  uint64_t half[2];
  std::memcpy(half, &p, sizeof(half));
  cpu::AtomicAt<uint64_t>(static_cast<char*>(to) + 8).store(half[1], std::memory_order_relaxed);
  cpu::FiberScheduler::YieldSometimes();
  cpu::AtomicAt<uint64_t>(to).store(half[0], std::memory_order_relaxed);
}

inline unsigned long long LoadRelaxedHalf(const void* from) {
  cpu::FiberScheduler::YieldSometimes();
  return cpu::AtomicAt<unsigned long long>(from).load(std::memory_order_relaxed);
}

inline void StoreRelaxedHalf(void* to, unsigned long long value) {
  cpu::FiberScheduler::YieldSometimes();
  cpu::AtomicAt<unsigned long long>(to).store(value, std::memory_order_relaxed);
}

inline Pack LoadPlain(const void* from) { return *static_cast<const Pack*>(from); }
inline void StorePlain(void* to, const Pack& p) { *static_cast<Pack*>(to) = p; }

inline unsigned long long LoadPlainHalf(const void* from) {
  return *static_cast<const unsigned long long*>(from);
}
inline void StorePlainHalf(void* to, unsigned long long value) {
  *static_cast<unsigned long long*>(to) = value;
}

inline unsigned int LoadWordIf(bool is_there, const void* from) {
  return is_there ? *static_cast<const unsigned int*>(from) : 0;
}
inline unsigned int LoadShortIf(bool is_there, const void* from) {
  return is_there ? *static_cast<const unsigned short*>(from) : 0;
}
inline unsigned int LoadByteIf(bool is_there, const void* from) {
  return is_there ? *static_cast<const unsigned char*>(from) : 0;
}
inline void StoreWordIf(bool is_there, void* to, unsigned int value) {
  if (is_there) *static_cast<unsigned int*>(to) = value;
}
inline void StoreShortIf(bool is_there, void* to, unsigned int value) {
  if (is_there) *static_cast<unsigned short*>(to) = static_cast<unsigned short>(value);
}
inline void StoreByteIf(bool is_there, void* to, unsigned int value) {
  if (is_there) *static_cast<unsigned char*>(to) = static_cast<unsigned char>(value);
}

// A store to a peer may stay on its way until a release that it happened before.
inline void StoreToPeer(void* to, const Pack& p) {
  cpu::FiberScheduler::YieldSometimes();
  cpu::DelayStore({to, {p.word[0], p.word[1], p.word[2], p.word[3]}}, cpu::WriteDelayed);
}

inline Pack LoadFromPeer(const void* from) {
  cpu::FiberScheduler::YieldSometimes();
  return *static_cast<const Pack*>(from);
}

inline void StoreRelease(unsigned long long* to, unsigned long long value) {
  cpu::FinishStores();
  cpu::AtomicAt<unsigned long long>(to).store(value, std::memory_order_release);
}

inline unsigned long long LoadAcquire(const unsigned long long* from) {
  cpu::FiberScheduler::YieldSometimes();
  return cpu::AtomicAt<unsigned long long>(from).load(std::memory_order_acquire);
}

inline unsigned int ZeroOfThread() { return 0; }

inline unsigned int LoadWord(const void* from) {
  return cpu::AtomicAt<unsigned int>(from).load(std::memory_order_relaxed);
}

inline unsigned int LoadHostWord(const void* from) {
  ++cpu::host_word_loads;
  return LoadWord(from);
}

struct WordPair {
  unsigned int first, second;
};
inline WordPair LoadWordPair(const void* from) {
  const unsigned int first = LoadWord(from);
  cpu::FiberScheduler::YieldSometimes();
  return {first, LoadWord(static_cast<const char*>(from) + 4)};
}

inline void StoreWord(void* to, unsigned int value) {
  cpu::FiberScheduler::YieldSometimes();
  cpu::AtomicAt<unsigned int>(to).store(value, std::memory_order_relaxed);
}

inline unsigned long long GlobalTimerNs() { return cpu::FiberScheduler::NowNs(); }
template <typename... Arguments>
void BeginLaunch(const Arguments&... /*arguments*/) {
  cpu::FiberScheduler::YieldSometimes();
}

template <int kBytes>
unsigned char* BlockMemory() {
  return cpu::BlockMemoryOf(kBytes);
}
// A gate is a count of the bytes that are expected, less those that came, and how often it opened.
inline void InitGate(void* gate) { cpu::AtomicAt<uint64_t>(gate).store(0); }
inline void FenceGates() {}
inline void ArriveAtCluster() { cpu::ArriveAtCluster(); }
inline void WaitForCluster() { cpu::WaitForCluster(); }
inline void ExpectBytes(void* gate, unsigned int bytes) { cpu::CountAtGate(gate, bytes, true); }
template <typename T>
void PushToBlock(unsigned int block, T* at, T value, void* gate) {
  cpu::FiberScheduler::YieldSometimes();
  *static_cast<T*>(cpu::InBlockOfCluster(block, at)) = value;
  cpu::CountAtGate(cpu::InBlockOfCluster(block, gate), sizeof(T), false);
}
inline void WaitAtGate(void* gate, unsigned int parity) { cpu::WaitAtGate(gate, parity); }
inline float ShuffleXor(float value, int offset) {
  const auto bits = std::bit_cast<unsigned int>(value);
  return std::bit_cast<float>(
      static_cast<unsigned int>(cpu::ExchangeInWarp(bits, static_cast<unsigned int>(offset))));
}
inline double ShuffleXor(double value, int offset) {
  return std::bit_cast<double>(cpu::ExchangeInWarp(std::bit_cast<unsigned long long>(value),
                                                   static_cast<unsigned int>(offset)));
}
template <int kLanes>
unsigned int OfFirstLane(unsigned int value) {
  return static_cast<unsigned int>(cpu::ExchangeInWarp(value, threadIdx.x % kLanes));
}
inline void SyncWarp() { cpu::SyncLanes(); }

// x87's 64 bits of mantissa hold every f64 and every integer here.
template <typename From>
float FloatTowardZero(From value) {
  const auto nearest = static_cast<float>(value);
  const bool is_beyond =
      std::fabs(static_cast<long double>(nearest)) > std::fabs(static_cast<long double>(value));
  return is_beyond ? std::nextafter(nearest, 0.0f) : nearest;
}

inline float FloatFromF16(unsigned short bits) { return cpu::FloatFromF16Bits(bits); }
inline unsigned short F16FromFloat(float value) { return cpu::F16BitsFromFloat(value); }
inline unsigned short Bf16FromFloat(float value) { return cpu::Bf16BitsFromFloat(value); }
inline unsigned int F16PairFromFloats(float low, float high) {
  return F16FromFloat(low) | static_cast<unsigned int>(F16FromFloat(high)) << 16;
}
inline unsigned int Bf16PairFromFloats(float low, float high) {
  return Bf16FromFloat(low) | static_cast<unsigned int>(Bf16FromFloat(high)) << 16;
}
inline unsigned int AddF16Pairs(unsigned int a, unsigned int b) {
  const auto half = [](unsigned int pair, int i) {
    return FloatFromF16(static_cast<unsigned short>(pair >> 16 * i));
  };
  return F16PairFromFloats(half(a, 0) + half(b, 0), half(a, 1) + half(b, 1));
}
inline unsigned int AddBf16Pairs(unsigned int a, unsigned int b) {
  const auto low = [](unsigned int pair) { return __uint_as_float(pair << 16); };
  const auto high = [](unsigned int pair) { return __uint_as_float(pair & 0xFFFF0000u); };
  return Bf16PairFromFloats(low(a) + low(b), high(a) + high(b));
}
inline unsigned int F16PairsBelowZero(unsigned int pair) {
  const auto is_below = [&](int i) {
    return FloatFromF16(static_cast<unsigned short>(pair >> 16 * i)) < 0.0f;
  };
  return (is_below(0) ? 0x0000FFFFu : 0u) | (is_below(1) ? 0xFFFF0000u : 0u);
}
inline unsigned int Bf16PairsBelowZero(unsigned int pair) {
  const unsigned int low = __uint_as_float(pair << 16) < 0.0f ? 0x0000FFFFu : 0u;
  return low | (__uint_as_float(pair & 0xFFFF0000u) < 0.0f ? 0xFFFF0000u : 0u);
}

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_CPU_RUNNER_DEVICE_ON_CPU_H_
