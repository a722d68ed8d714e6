// Blocks whose size is no multiple of a pack: where they are cut into packs.
#pragma once

#include "pack_array.cuh"

namespace cotune::cuda {

// The block of a buffer that lies behind `place` others is cut at the boundaries of packs in that
// buffer, supposing that the buffer is aligned. Who sends or reads the block cuts it the same way
// elsewhere. So only one end of the way takes packs to pieces.
class BlockCut {
 public:
  __device__ __forceinline__ BlockCut(const KernelArguments& a, int place)
      : bytes_(a.count * kElementBytes),
        skip_(static_cast<unsigned int>(place * bytes_ & (kPackBytes - 1))) {
#if defined(COTUNE_COLLECTIVE_ALL_TO_ALL)
    // In place, a thread that stores what has come in must not reach into what another one still
    // has to send: all blocks are cut alike.
    if (a.send == a.recv) skip_ = 0;
#endif
  }

  // The same for all places: some blocks have one pack less.
  static __device__ __forceinline__ unsigned long long Packs(const KernelArguments& a) {
    const unsigned long long bytes = a.count * kElementBytes;
    return bytes % kPackBytes == 0 ? bytes / kPackBytes : (bytes + 2 * kPackBytes - 2) / kPackBytes;
  }

  // Block `block` of the buffer.
  __device__ __forceinline__ PackArray Of(const void* buffer, int block) const {
    return PackArray{static_cast<const unsigned char*>(buffer) + block * bytes_ - skip_,
                     bytes_ + skip_, skip_};
  }

 private:
  unsigned long long bytes_;
  unsigned int skip_;  // bytes of the first pack that are not of the block
};

}  // namespace cotune::cuda
