// Every kernel that waits for peers needs this: who they are, and when to give up.
#pragma once

#include "prelude.cuh"

namespace cotune::cuda {

constexpr int kPeers = COTUNE_WORLD_SIZE - 1;

__device__ __forceinline__ ArenaControl* ControlOf(const KernelArguments& a, int rank) {
  return reinterpret_cast<ArenaControl*>(a.arena[rank]);
}

// This rank's control memory, for loads in front of the first loads of data. In kernels for small
// calls the address depends on the thread, see ZeroOfThread: a call of 1 KB feels one more wait for
// memory. Kernels with several packs a thread have no registers to spare.
__device__ __forceinline__ const ArenaControl* ControlAtBegin(const KernelArguments& a) {
  const unsigned int zero = COTUNE_UNROLL == 1 ? ZeroOfThread() : 0;
  return reinterpret_cast<const ArenaControl*>(a.arena[a.rank] + zero);
}

// In the arena of `rank`: the record of the call that `source` makes.
__device__ __forceinline__ unsigned char* CallRecordAt(const KernelArguments& a, int rank,
                                                       int source) {
  return a.arena[rank] + kCallRecordsBegin + source * sizeof(CallRecord);
}

// The record of this rank's launch `number`.
__device__ __forceinline__ Pack OwnCall(const KernelArguments& a, unsigned int number) {
  const CallRecord& call = a.call;
  return Pack{{number, call.word[1], call.word[2] | (number & 0xFFu), call.word[3]}};
}

// Gives up for this rank, which all other ranks hear of, and writes down why; kNoFailure: for the
// reason that the group's poison says. Not inlined, and called only by threads that leave: nothing
// of theirs is kept in registers across the call.
__device__ __noinline__ void GiveUp(const KernelArguments& a, FailureKind kind, int peer,
                                    unsigned int step, unsigned int number) {
  // The first failure of this rank counts, and one thread writes it down. All threads of all queued
  // launches of a failed group ask, so the answer lies in device memory: when they asked host
  // memory, a launch of 32,768 threads took 40 ms to leave.
  ArenaControl* control = ControlOf(a, a.rank);
  if (LoadWord(&control->is_told) != 0 || atomicCAS_system(&control->is_told, 0u, 1u) != 0u) return;
  unsigned int poison = LoadWord(&control->poison);
  if (kind != kNoFailure) {
    // The peer may itself wait for a rank that has not come. Block 0 knows the number of its
    // launch.
#pragma unroll 1
    for (int rank = 0; kind == kTimeout && rank < COTUNE_WORLD_SIZE; ++rank) {
      if (rank == a.rank || blockIdx.x != 0) continue;
      const unsigned int reached = LoadWord(CallRecordAt(a, a.rank, rank));
      if (static_cast<int>(reached - number) < 0) peer = rank;
    }
    poison = MakePoison(kind, a.rank, peer);
#pragma unroll 1
    for (int rank = 0; rank < COTUNE_WORLD_SIZE; ++rank) {
      StoreWord(&ControlOf(a, rank)->poison, poison);
    }
  }
  FailureRecord* record = a.failure;
  record->poison = poison;
  record->step = step;
  record->block = blockIdx.x;
  // Other blocks see whether block 0 has counted it, which it has but for the first moments.
  record->number = blockIdx.x == 0 ? number + 1 : LoadWord(&control->launches);
  // Often the one that makes another call than this rank.
  peer = PoisonPeer(poison);
  const int other = peer == a.rank ? PoisonReporter(poison) : peer;
  record->other = other;
  const unsigned char* theirs = CallRecordAt(a, a.rank, other);
  const Pack heard = LoadRelaxed(theirs);
  const bool has_heard = heard.word[0] + 1 == record->number;
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    record->own_call.word[w] = a.call.word[w];
    record->other_call.word[w] = has_heard ? heard.word[w] : a.call.word[w];
  }
  // The poison has reached every rank before this rank's host can see the failure.
  __threadfence_system();
  atomicExch_system(&record->is_set, 1u);
}

constexpr unsigned int kFreshTicks = 64;

// How long a launch waits, and what ends it before. One a thread. What it does while a thread waits
// is inlined: a call that comes back would cost every kernel the registers that it must not touch.
class SpinBudget {
 public:
  __device__ __forceinline__ explicit SpinBudget(const KernelArguments& a) : arguments_(a) {}

  // The number of this launch, in block 0 alone.
  __device__ __forceinline__ void set_number(unsigned int number) { number_ = number; }
  __device__ __forceinline__ unsigned int number() const { return number_; }
  __device__ __forceinline__ const KernelArguments& arguments() const { return arguments_; }

  // Asked after every kPollsPerLook polls by a thread that waits for `peer`: whether it has to give
  // up. The time counts from the first look on, so that a launch that need not wait reads no clock.
  __device__ __forceinline__ bool IsOver(int peer, unsigned int step) {
    const auto now = static_cast<unsigned int>(GlobalTimerNs() >> kTickBits);
    if (begin_ == 0) begin_ = now;
    FailureKind why = kNoFailure;
    // Block 0 gives up first, as it knows which ranks have not come at all.
    const unsigned int timeout = arguments_.timeout_ticks;
    const unsigned int more = blockIdx.x == 0 ? 0 : timeout / 8 + 2;
    if (now - begin_ > timeout && now - begin_ - timeout > more) why = kTimeout;
    if (IsAborted(now)) why = kAborted;
    const bool is_poisoned = LoadWord(&ControlOf(arguments_, arguments_.rank)->poison) != 0;
    if (is_poisoned) why = kNoFailure;
    if (why == kNoFailure && !is_poisoned) return false;
    GiveUp(arguments_, why, peer, step, number_);
    return true;
  }

  // Whether a kernel of any rank has given up; this rank fails with the same reason.
  __device__ __forceinline__ bool HasGroupFailed(unsigned int step) {
    if (LoadWord(&ControlOf(arguments_, arguments_.rank)->poison) == 0) return false;
    GiveUp(arguments_, kNoFailure, 0, step, number_);
    return true;
  }

  // The same for a thread that may wait for what only another call sends, in place of comparing
  // calls.
  __device__ __forceinline__ bool IsOverOrOtherCall(int peer, unsigned int step) {
    const unsigned long long call =
        LoadRelaxedHalf(CallRecordAt(arguments_, arguments_.rank, peer));
    // Block 0 alone knows the number.
    if (blockIdx.x == 0 && static_cast<unsigned int>(call) == number_ &&
        static_cast<unsigned int>(call >> 32) != arguments_.call.word[1]) {
      Fail(kMismatch, peer, step);
      return true;
    }
    return IsOver(peer, step);
  }

  __device__ __forceinline__ void Fail(FailureKind kind, int peer, unsigned int step) {
    GiveUp(arguments_, kind, peer, step, number_);
  }

 private:
  // Returns true if the host has ended every wait. In each tick one of the waiting threads reads
  // the host's word, and leaves the answer in device memory. 65,536 threads that read host memory
  // take 2.4 ms: the peers wait for this rank meanwhile, so that their threads read host memory as
  // well, and each call makes the next one late.
  __device__ __forceinline__ bool IsAborted(unsigned int now) {
    ArenaControl* control = ControlOf(arguments_, arguments_.rank);
    const unsigned int looked = LoadWord(&control->looked_tick);
    // A look at a tick a little after this thread's was another thread's, a moment ago. All other
    // ticks are old, and may look like later ones because ticks begin anew after 19 hours.
    const bool is_fresh = looked - now < kFreshTicks;
    if (!is_fresh && atomicCAS_system(&control->looked_tick, looked, now) == looked &&
        LoadHostWord(&arguments_.abort->value) != 0) {
      StoreWord(&control->is_aborted, 1u);
    }
    return LoadWord(&control->is_aborted) != 0;
  }

  const KernelArguments& arguments_;
  unsigned int begin_ = 0;  // in ticks; 0: not yet
  unsigned int number_ = 0;
};

// Peer q in ascending order of ranks without `rank`.
__device__ __forceinline__ int PeerAt(int q, int rank) { return q < rank ? q : q + 1; }

// Peers beginning with the next rank, so that every rank begins with another one.
__device__ __forceinline__ int PeerAfter(int rank, int hop) {
  const int peer = rank + 1 + hop;
  return peer < COTUNE_WORLD_SIZE ? peer : peer - COTUNE_WORLD_SIZE;
}

}  // namespace cotune::cuda
