// Data that moves plain, in chunks, with a flag behind each: the whole link carries data. The protocol
// is in kernel_abi.h.
#pragma once

#include "element.cuh"
#include "patience.cuh"

namespace cotune::cuda {

// The rounds of this block with the blocks of the same index on all peers.
class Rounds {
 public:
  __device__ __forceinline__ explicit Rounds(const KernelArguments& a)
      : arguments_(a),
        patience_(a),
        count_(reinterpret_cast<unsigned long long*>(a.arena[a.rank] + kRoundsBegin) + blockIdx.x),
        first_(*const_cast<volatile unsigned long long*>(count_)) {}

  // Of round `round` of this launch, counted from 0.
  __device__ __forceinline__ unsigned long long Number(unsigned int round) const {
    return first_ + round;
  }

  // By all threads, when their part of the round is done: tells every peer.
  __device__ __forceinline__ void SetFlags(unsigned int round) {
    __syncthreads();
    if (threadIdx.x >= kPeers) return;
    const int peer = (arguments_.rank + 1 + static_cast<int>(threadIdx.x)) % COTUNE_WORLD_SIZE;
    StoreRelease(FlagAt(peer, arguments_.rank), Number(round) + 1);
  }

  // By all threads: until every peer is done with the round. False: gave up. Threads at the end of the
  // block wait, so that those that set flags need not do both one after the other.
  __device__ __forceinline__ bool WaitForFlags(unsigned int round) {
    const int q = static_cast<int>(blockDim.x - 1 - threadIdx.x);
    return __syncthreads_or(q < kPeers && !WaitForFlag(PeerAt(q, arguments_.rank), round)) == 0;
  }

  // By all threads at the end: this launch had `rounds` rounds that set flags, at least one.
  __device__ __forceinline__ void End(unsigned int rounds) {
    if (threadIdx.x == 0) *count_ = first_ + rounds;
  }

 private:
  // The flag in the arena of `rank` that `source` sets.
  __device__ __forceinline__ unsigned long long* FlagAt(int rank, int source) const {
    unsigned char* line = arguments_.arena[rank] + kFlagsBegin + blockIdx.x * kFlagLineBytes;
    return reinterpret_cast<unsigned long long*>(line) + source;
  }

  __device__ __forceinline__ bool WaitForFlag(int peer, unsigned int round) {
    const unsigned long long* flag = FlagAt(arguments_.rank, peer);
    for (unsigned int polls = 1; LoadAcquire(flag) <= Number(round); ++polls) {
      const auto step = static_cast<unsigned int>(Number(round));
      if (polls % 1024 == 0 && patience_.IsOver(peer, step)) return false;
    }
    return true;
  }

  const KernelArguments& arguments_;
  Patience patience_;
  unsigned long long* count_;
  unsigned long long first_;
};

// Where chunks lie in scratch.
class FlaggedSlots {
 public:
  __device__ __forceinline__ explicit FlaggedSlots(const KernelArguments& a) : arguments_(a) {}

  // In the arena of `rank`: what `source` sends in the round, and the results that it sends.
  __device__ __forceinline__ unsigned char* In(int rank, int source,
                                               unsigned long long round) const {
    return Slot(rank, source, static_cast<unsigned int>(round % kInSlots));
  }
  __device__ __forceinline__ unsigned char* Out(int rank, int source,
                                                unsigned long long round) const {
    return Slot(rank, source, kInSlots + static_cast<unsigned int>(round % kOutSlots));
  }

 private:
  __device__ __forceinline__ unsigned char* Slot(int rank, int source, unsigned int slot) const {
    // Sources in ascending order without the rank itself.
    const int place = source < rank ? source : source - 1;
    return arguments_.arena[rank] + kFlaggedBegin + blockIdx.x * kFlaggedBlockBytes +
           (slot * kPeers + static_cast<unsigned int>(place)) * FlaggedSlotBytes(COTUNE_WORLD_SIZE);
  }

  const KernelArguments& arguments_;
};

// How a row of packs is cut into chunks: as even as can be, none larger than chunk_bytes, and block b
// gets chunks b, b + blocks, ... The same on all ranks.
class Chunks {
 public:
  __device__ __forceinline__ Chunks(unsigned long long packs, int chunk_bytes) : packs_(packs) {
    // Whole lines of 512 bytes, which are what a warp moves at once.
    constexpr unsigned int kLinePacks = 32;
    const auto packs_max = static_cast<unsigned int>(chunk_bytes) / kPackBytes;
    const unsigned int blocks = gridDim.x;
    const unsigned long long turns =
        (packs + 1ull * blocks * packs_max - 1) / (1ull * blocks * packs_max);
    const unsigned long long even = turns == 0 ? 0 : (packs + turns * blocks - 1) / (turns * blocks);
    size_ = static_cast<unsigned int>((even + kLinePacks - 1) / kLinePacks * kLinePacks);
    if (size_ > packs_max) size_ = packs_max;
    const unsigned long long all = size_ == 0 ? 0 : (packs + size_ - 1) / size_;
    count_ = blockIdx.x < all
                 ? static_cast<unsigned int>((all - blockIdx.x + blocks - 1) / blocks)
                 : 0;
  }

  // Of this block.
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

// ---- The caller's buffers, several packs of a thread at a time ----

struct WholePacks {  // every pack is aligned and complete
  static constexpr int kUnroll = COTUNE_UNROLL;
  static __device__ __forceinline__ Pack Load(const PackArray& array, unsigned long long i) {
    return LoadPlain(array.data + i * kPackBytes);
  }
  static __device__ __forceinline__ void Store(const PackArray& array, unsigned long long i,
                                               const Pack& p) {
    StorePlain(const_cast<unsigned char*>(array.data) + i * kPackBytes, p);
  }
};

struct AnyPacks {
  static constexpr int kUnroll = 1;
  static __device__ __forceinline__ Pack Load(const PackArray& array, unsigned long long i) {
    return array.Load(i);
  }
  static __device__ __forceinline__ void Store(const PackArray& array, unsigned long long i,
                                               const Pack& p) {
    array.Store(i, p);
  }
};

__device__ __forceinline__ bool IsAligned(const void* data) {
  return (reinterpret_cast<unsigned long long>(data) & (kPackBytes - 1)) == 0;
}

// body(access, at): the thread's packs at, at + blockDim.x, ... of which there are access.kUnroll, as
// far as they are below `size`.
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

// Peers beginning with the next rank, so that every rank begins with another one.
__device__ __forceinline__ int PeerAfter(int rank, int hop) {
  const int peer = rank + 1 + hop;
  return peer < COTUNE_WORLD_SIZE ? peer : peer - COTUNE_WORLD_SIZE;
}

}  // namespace cotune::cuda
