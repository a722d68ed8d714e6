// What every launch does for its group: it leaves at once when the group has failed, and it ends only
// when all ranks make the same call. The argument is in kernel_abi.h.
#pragma once

#include "patience.cuh"

namespace cotune::cuda {

// One a thread; all threads of the launch call Begin and End, unless they give up. Threads at the end
// of block 0, the first to have no data, compare the call with that of one peer each.
class CallGuard {
 public:
  // Reads the state of the group, with one access.
  __device__ __forceinline__ CallGuard(const KernelArguments& a, Patience& patience)
      : arguments_(a),
        patience_(patience),
        control_(LoadRelaxed(ControlOf(a, a.rank))),
        compares_(blockIdx.x == 0 && Place() < kPeers) {}

  __device__ __forceinline__ unsigned int step() const { return control_.word[0]; }

  // Whether the group works. A launch that sends in front of Begin, so that its loads do not wait for
  // the state of the group, sends nothing to others when this is false.
  __device__ __forceinline__ bool IsOpen() const { return control_.word[3] == 0; }

  // Tells the peers which call this is. Best in front of the first data for them, so that the record
  // is there when the data is.
  __device__ __forceinline__ void Post() {
    if (compares_ && !is_posted_ && IsOpen()) {
      const CallRecord& call = arguments_.call;
      StoreRelaxed(CallRecordAt(arguments_, Peer(), arguments_.rank),
                   Pack{{Number(), call.word[1], OwnCallWord(arguments_, Number(), 2),
                         call.word[3]}});
    }
    is_posted_ = true;
  }

  // In front of the first wait. False: the group has failed, and the launch must leave. A thread
  // that needs the number waits for it with all that it would do afterwards, hence not earlier.
  __device__ __forceinline__ bool Begin() {
    Post();
    patience_.set_number(Number());
    if (IsOpen()) return true;
    patience_.HasGroupFailed(step());  // any thread may be the only one that has seen it
    return false;
  }

  // Waits until each peer has told its call. Where one is another call, the launch fails.
  __device__ __forceinline__ void End() {
    // A launch without data tells nobody of itself.
    if (!compares_ || !is_posted_) return;
    if (LoadRelaxedHalf(RecordOfPeer()) != OwnHalf()) {
      WaitForTheSameCall(RecordOfPeer(), OwnHalf(), Peer(), step(), patience_);
    }
  }

  // By one thread of the launch at its end, when no block reads the state of the group any more.
  __device__ __forceinline__ void Count() {
    StoreWord(&ControlOf(arguments_, arguments_.rank)->launches, Number());
  }

 private:
  __device__ __forceinline__ unsigned int Number() const { return control_.word[2] + 1; }
  __device__ __forceinline__ static int Place() {
    return static_cast<int>(blockDim.x - 1 - threadIdx.x);
  }
  __device__ __forceinline__ int Peer() const { return PeerAt(Place(), arguments_.rank); }
  __device__ __forceinline__ const unsigned char* RecordOfPeer() const {
    return CallRecordAt(arguments_, arguments_.rank, Peer());
  }
  // The number and the digest of this rank's call.
  __device__ __forceinline__ unsigned long long OwnHalf() const {
    return static_cast<unsigned long long>(arguments_.call.word[1]) << 32 | Number();
  }

  // Static: an object whose address leaves the inlined code would live in memory.
  __device__ __noinline__ static void WaitForTheSameCall(const unsigned char* record,
                                                         unsigned long long own, int peer,
                                                         unsigned int step, Patience& patience) {
    for (unsigned int polls = 1;; ++polls) {
      const unsigned long long theirs = LoadRelaxedHalf(record);
      const auto ahead =
          static_cast<int>(static_cast<unsigned int>(theirs) - static_cast<unsigned int>(own));
      if (theirs == own || ahead > 0) return;
      if (ahead == 0) {
        patience.Fail(kMismatch, peer, step);
        return;
      }
      if (polls % 1024 == 0 && patience.IsOver(peer, step)) return;
    }
  }

  const KernelArguments& arguments_;
  Patience& patience_;
  Pack control_;  // as ArenaControl
  bool compares_;
  bool is_posted_ = false;
};

}  // namespace cotune::cuda
