// What every launch does for its group: it leaves at once when the group has failed, and it ends only
// when all ranks make the same call. The argument is in kernel_abi.h.
#pragma once

#include "patience.cuh"

namespace cotune::cuda {

// One a thread; all threads of the launch call Begin and End, unless they give up.
class CallGuard {
 public:
  // Reads the state of the group, with one access.
  __device__ __forceinline__ CallGuard(const KernelArguments& a, Patience& patience)
      : arguments_(a), patience_(patience), control_(LoadRelaxed(ControlOf(a, a.rank))) {
    patience_.set_number(Number());
  }

  __device__ __forceinline__ unsigned int step() const { return control_.word[0]; }

  // Whether the group works. A launch that sends data in front of Begin, so that its loads do not
  // wait for the state of the group, sends nothing when this is false.
  __device__ __forceinline__ bool IsOpen() const { return control_.word[3] == 0; }

  // Tells the peers which call this is; in front of the first wait. False: the group has failed, and
  // the launch must leave.
  __device__ __forceinline__ bool Begin() {
    if (!IsOpen()) {
      // Any thread may be the only one that has seen it.
      patience_.HasGroupFailed(step());
      return false;
    }
    if (blockIdx.x == 0 && Place() < kPeers) {
      const int peer = PeerAt(Place(), arguments_.rank);
      StoreRelaxed(CallRecordAt(arguments_, peer, arguments_.rank), OwnCall(arguments_, Number()));
    }
    return true;
  }

  // Waits until each peer has told its call. Where one is another call, the launch fails.
  __device__ __forceinline__ void End() {
    if (blockIdx.x != 0 || Place() != 0 || !AllMakeTheSameCall()) return;
    StoreWord(&ControlOf(arguments_, arguments_.rank)->launches, Number());
  }

 private:
  __device__ __forceinline__ unsigned int Number() const { return control_.word[2] + 1; }

  // Threads at the end of a block are the first to have no data.
  __device__ __forceinline__ int Place() const {
    return static_cast<int>(blockDim.x - 1 - threadIdx.x);
  }

  // All records are on their way at once.
  __device__ __forceinline__ bool AllMakeTheSameCall() {
    const Pack own = OwnCall(arguments_, Number());
    for (unsigned int polls = 1;; ++polls) {
      Pack theirs[kPeers];
#pragma unroll
      for (int q = 0; q < kPeers; ++q) {
        const int peer = PeerAt(q, arguments_.rank);
        theirs[q] = LoadRelaxed(CallRecordAt(arguments_, arguments_.rank, peer));
      }
      int missing = -1;
      int other = -1;
#pragma unroll
      for (int q = 0; q < kPeers; ++q) {
        const bool is_equal =
            theirs[q].word[0] == own.word[0] && theirs[q].word[1] == own.word[1] &&
            theirs[q].word[2] == own.word[2] && theirs[q].word[3] == own.word[3];
        const bool is_ahead = static_cast<int>(theirs[q].word[0] - own.word[0]) > 0;
        if (is_equal || is_ahead) continue;
        missing = PeerAt(q, arguments_.rank);
        if (IsOtherCall(own, theirs[q])) other = missing;
      }
      if (missing < 0) return true;
      if (other >= 0) {
        patience_.Fail(kMismatch, other, step());
        return false;
      }
      if (polls % 1024 == 0 && patience_.IsOver(missing, step())) return false;
    }
  }

  const KernelArguments& arguments_;
  Patience& patience_;
  Pack control_;  // as ArenaControl
};

}  // namespace cotune::cuda
