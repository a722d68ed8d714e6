// Data that moves plain, in chunks through scratch, with a flag behind each: the whole link carries
// data. The protocol is in kernel_abi.h.
#pragma once

#include "chunks.cuh"
#include "rounds.cuh"

namespace cotune::cuda {

// Computes the places of chunks in scratch.
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

}  // namespace cotune::cuda
