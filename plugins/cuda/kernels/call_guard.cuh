// A launch of a failed group ends before it waits for data of peers, and a launch ends with success
// only if all ranks made the same call. kernel_abi.h has the argument.
#pragma once

#include "spin_budget.cuh"

namespace cotune::cuda {

// For CallGuard: not in the warp that waits for flags, which would do the one after the other.
__device__ __forceinline__ int NextToLastWarp() { return blockDim.x >= 32 + kPeers ? 32 : 0; }

// One a thread; all threads of the launch call Begin, unless they give up. In block 0 one thread
// for each peer compares the call with that peer's, while it waits for data anyway, or has looked
// before: a load from memory that nothing hides takes 0.1 us a call, and up to 1 us when memory is
// busy. Compare waits at the end only for a record that has not come by then.
class CallGuard {
 public:
  // poison: the word as the launch has read it, at its beginning. Nothing here looks at it before
  // Begin: waiting for it in front of the first loads of data took 0.13 us a call. Only block 0
  // reads more, as all warps of a large launch that read the same line wait for each other.
  // first: of the threads that compare, counted from the end of the block.
  __device__ __forceinline__ CallGuard(const KernelArguments& a, SpinBudget& budget,
                                       unsigned int poison, int first)
      : arguments_(a), budget_(budget), first_(first), poison_(poison) {
    if (blockIdx.x == 0) number_ = LoadWord(&ControlAtBegin(a)->launches);
  }

  // The group works. A launch that sends in front of Begin, so that its loads do not wait for the
  // state of the group, sends nothing to others when this is false.
  __device__ __forceinline__ bool IsOpen() const { return poison_ == 0; }

  // In front of the first wait: tells the peers which call this is. Behind the first data for them,
  // which is longer on its way than the record is late. False: the group has failed, and the launch
  // must leave.
  __device__ __forceinline__ bool Begin(unsigned int step) {
    budget_.set_number(number_);
    if (!IsOpen()) {
      budget_.HasGroupFailed(step);  // any thread may be the only one that has seen it
      return false;
    }
    if (blockIdx.x != 0 || Place() < 0 || Place() >= kPeers) return true;
    peer_ = PeerAt(Place(), arguments_.rank);
    StoreRelaxed(CallRecordAt(arguments_, peer_, arguments_.rank), OwnCall(arguments_, number_));
    return true;
  }

  // Reads the first half of the record of this thread's peer, for IsSame and IsOver; 0 where the
  // thread compares no call.
  __device__ __forceinline__ unsigned long long Heard() const {
    return peer_ < 0 ? 0 : LoadRelaxedHalf(CallRecordAt(arguments_, arguments_.rank, peer_));
  }

  // Whether this thread need not wait for its peer's record any more.
  __device__ __forceinline__ bool IsSame(unsigned long long heard) const {
    return peer_ < 0 || heard == OwnHalf() || Ahead(heard) > 0;
  }
  __device__ __forceinline__ void SetCompared() { peer_ = -1; }

  // Asked like SpinBudget::IsOver, by a thread that waits for `peer`; -1: only for what it
  // compares.
  __device__ __forceinline__ bool IsOver(unsigned long long heard, int peer, unsigned int step) {
    if (!IsSame(heard) && Ahead(heard) == 0) {
      budget_.Fail(kMismatch, peer_, step);
      return true;
    }
    return budget_.IsOver(peer < 0 ? peer_ : peer, step);
  }

  // Waits until this thread's peer has told the same call. False: gave up.
  __device__ __forceinline__ bool Compare(unsigned int step) {
    for (unsigned int polls = 1; peer_ >= 0; ++polls) {
      const unsigned long long heard = Heard();
      if (IsSame(heard)) {
        SetCompared();
      } else if ((Ahead(heard) == 0 || polls % kPollsPerLook == 0) && IsOver(heard, -1, step)) {
        return false;
      }
    }
    return true;
  }

  // By all threads behind a barrier of their block, once.
  __device__ __forceinline__ void Count() {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    StoreWord(&ControlOf(arguments_, arguments_.rank)->launches, number_ + 1);
  }

 private:
  // Among the threads that compare, counted from the end of the block.
  __device__ __forceinline__ int Place() const {
    return static_cast<int>(blockDim.x - 1 - threadIdx.x) - first_;
  }

  // The number and the digest of this rank's call.
  __device__ __forceinline__ unsigned long long OwnHalf() const {
    return static_cast<unsigned long long>(arguments_.call.word[1]) << 32 | number_;
  }
  __device__ __forceinline__ int Ahead(unsigned long long heard) const {
    return static_cast<int>(static_cast<unsigned int>(heard) - number_);
  }

  const KernelArguments& arguments_;
  SpinBudget& budget_;
  int first_;
  unsigned int poison_;
  unsigned int number_ = 0;  // of this launch, in block 0
  int peer_ = -1;            // whose call this thread has yet to compare; -1: none
};

}  // namespace cotune::cuda
