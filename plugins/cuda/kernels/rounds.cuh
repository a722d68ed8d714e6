// How blocks of the same index on all ranks work together, by flags that count. The argument is in
// kernel_abi.h.
#pragma once

#include "call_guard.cuh"

namespace cotune::cuda {

// The rounds of this block with the blocks of the same index on all peers.
class Rounds {
 public:
  __device__ __forceinline__ Rounds(const KernelArguments& a, SpinBudget& budget)
      : arguments_(a),
        budget_(budget),
        guard_(a, budget, LoadWord(&ControlOf(a, a.rank)->poison), NextToLastWarp()),
        count_(reinterpret_cast<unsigned long long*>(a.arena[a.rank] + kRoundsBegin) + blockIdx.x),
        first_(*const_cast<volatile unsigned long long*>(count_)) {}

  // Whether the group works: nothing is sent in front of Begin when it does not.
  __device__ __forceinline__ bool IsOpen() const { return guard_.IsOpen(); }
  // By all threads, in front of the first flags. False, for all of them alike: the group has
  // failed. Threads that read the poison while it comes differ in what they see of it. If some left
  // and others went on, those would set flags for packs that were not sent, and read what nobody
  // has waited for.
  __device__ __forceinline__ bool Begin() {
    const bool is_open = guard_.Begin(static_cast<unsigned int>(first_));
    return __syncthreads_or(is_open ? 0 : 1) == 0;
  }

  // The number of the group's rounds so far at round `round` of this launch, counted from 0.
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

  // By all threads: until every peer is done with the round. False: gave up. Threads at the end of
  // the block wait, so that those that set flags need not do both one after the other.
  __device__ __forceinline__ bool WaitForFlags(unsigned int round) {
    const int q = static_cast<int>(blockDim.x - 1 - threadIdx.x);
    bool gives_up = q < kPeers && !WaitForFlag(PeerAt(q, arguments_.rank), round);
    gives_up = gives_up || !guard_.Compare(static_cast<unsigned int>(Number(round)));
    return __syncthreads_or(gives_up) == 0;
  }

  // The same for the last round of a launch that reads callers' buffers of peers: a peer that gave
  // up after its last flag may have reused its buffers before another rank had read them. Data from
  // such a buffer arrives before the flag of the rank that read it, and the poison of the peer that
  // gave up before that data: so the thread that waits for a flag looks for poison after it.
  __device__ __forceinline__ bool WaitForLastFlags(unsigned int round) {
    const int q = static_cast<int>(blockDim.x - 1 - threadIdx.x);
    const auto step = static_cast<unsigned int>(Number(round));
    bool gives_up = q < kPeers && (!WaitForFlag(PeerAt(q, arguments_.rank), round) ||
                                   budget_.HasGroupFailed(step));
    gives_up = gives_up || !guard_.Compare(step);
    return __syncthreads_or(gives_up) == 0;
  }

  // By all threads at the end: this launch had `rounds` rounds that set flags, at least one.
  __device__ __forceinline__ void End(unsigned int rounds) {
    if (threadIdx.x == 0) *count_ = first_ + rounds;
    guard_.Count();
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
      if (polls % kPollsPerLook == 0 && budget_.IsOver(peer, step)) return false;
    }
    return true;
  }

  const KernelArguments& arguments_;
  SpinBudget& budget_;
  CallGuard guard_;
  unsigned long long* count_;
  unsigned long long first_;
};

}  // namespace cotune::cuda
