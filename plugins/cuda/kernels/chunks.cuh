// Work in chunks of packs: which of them a block does, and how its threads go through one.
#pragma once

#include "pack_array.cuh"
#include "spin_budget.cuh"

namespace cotune::cuda {

// How a row of packs is cut into chunks: as even as can be, none larger than chunk_bytes, and block
// b gets chunks b, b + blocks, ... The same on all ranks.
class Chunks {
 public:
  __device__ __forceinline__ Chunks(unsigned long long packs, int chunk_bytes) : packs_(packs) {
    // Whole lines of 512 bytes, which are what a warp moves at once.
    constexpr unsigned int kLinePacks = 32;
    const auto packs_max = static_cast<unsigned int>(chunk_bytes) / kPackBytes;
    const unsigned int blocks = gridDim.x;
    const unsigned long long turns =
        (packs + 1ull * blocks * packs_max - 1) / (1ull * blocks * packs_max);
    const unsigned long long even =
        turns == 0 ? 0 : (packs + turns * blocks - 1) / (turns * blocks);
    size_ = static_cast<unsigned int>((even + kLinePacks - 1) / kLinePacks * kLinePacks);
    if (size_ > packs_max) size_ = packs_max;
    const unsigned long long all = size_ == 0 ? 0 : (packs + size_ - 1) / size_;
    count_ =
        blockIdx.x < all ? static_cast<unsigned int>((all - blockIdx.x + blocks - 1) / blocks) : 0;
  }

  // The number of chunks of this block.
  __device__ __forceinline__ unsigned int count() const { return count_; }
  __device__ __forceinline__ unsigned long long Begin(unsigned int chunk) const {
    return (1ull * chunk * gridDim.x + blockIdx.x) * size_;
  }
  // Packs of the chunk that lie in a row of only `packs` packs.
  __device__ __forceinline__ unsigned int SizeIn(unsigned long long packs,
                                                 unsigned int chunk) const {
    const unsigned long long begin = Begin(chunk);
    if (begin >= packs) return 0;
    return packs - begin < size_ ? static_cast<unsigned int>(packs - begin) : size_;
  }
  __device__ __forceinline__ unsigned int Size(unsigned int chunk) const {
    return SizeIn(packs_, chunk);
  }

 private:
  unsigned long long packs_;
  unsigned int size_;
  unsigned int count_;
};

// ---- Callers' buffers, several packs of a thread at a time ----

struct WholePacks {  // every pack is aligned and complete
  static constexpr int kUnroll = COTUNE_UNROLL;
  static __device__ __forceinline__ Pack Load(const PackArray& array, unsigned long long i) {
    return LoadPlain(array.data + i * kPackBytes);
  }
  static __device__ __forceinline__ Pack LoadOfPeer(const PackArray& array, unsigned long long i) {
    return LoadFromPeer(array.data + i * kPackBytes);
  }
  static __device__ __forceinline__ void Store(const PackArray& array, unsigned long long i,
                                               const Pack& p) {
    StorePlain(const_cast<unsigned char*>(array.data) + i * kPackBytes, p);
  }
  static __device__ __forceinline__ void StoreAtPeer(const PackArray& array, unsigned long long i,
                                                     const Pack& p) {
    StoreToPeer(const_cast<unsigned char*>(array.data) + i * kPackBytes, p);
  }
};

struct AnyPacks {
  static constexpr int kUnroll = 1;
  static __device__ __forceinline__ Pack Load(const PackArray& array, unsigned long long i) {
    return array.LoadPieces(i);
  }
  static __device__ __forceinline__ Pack LoadOfPeer(const PackArray& array, unsigned long long i) {
    return array.IsWhole(i) ? WholePacks::LoadOfPeer(array, i) : array.Load(i);
  }
  static __device__ __forceinline__ void Store(const PackArray& array, unsigned long long i,
                                               const Pack& p) {
    array.Store(i, p);
  }
  static __device__ __forceinline__ void StoreAtPeer(const PackArray& array, unsigned long long i,
                                                     const Pack& p) {
    if (array.IsWhole(i)) {
      WholePacks::StoreAtPeer(array, i, p);
    } else {
      array.Store(i, p);
    }
  }
};

__device__ __forceinline__ bool IsAligned(const void* data) {
  return (reinterpret_cast<unsigned long long>(data) & (kPackBytes - 1)) == 0;
}

// body(access, at): the thread's packs at, at + blockDim.x, ... of which there are access.kUnroll,
// as far as they are below `size`.
template <typename Body>
__device__ __forceinline__ void ForPacks(unsigned int size, bool are_whole, Body body) {
  if (are_whole) {
    for (unsigned int at = threadIdx.x; at < size; at += blockDim.x * WholePacks::kUnroll) {
      body(WholePacks(), at);
    }
  } else {
    for (unsigned int at = threadIdx.x; at < size; at += blockDim.x) body(AnyPacks(), at);
  }
}

}  // namespace cotune::cuda
