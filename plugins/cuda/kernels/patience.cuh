// What every kernel that waits for peers needs: who they are, and when to give up.
#pragma once

#include "prelude.cuh"

namespace cotune::cuda {

constexpr int kPeers = COTUNE_WORLD_SIZE - 1;

__device__ __forceinline__ ArenaControl* ControlOf(const KernelArguments& a, int rank) {
  return reinterpret_cast<ArenaControl*>(a.arena[rank]);
}

// In the arena of `rank`: the record of the call that `source` makes.
__device__ __forceinline__ unsigned char* CallRecordAt(const KernelArguments& a, int rank,
                                                       int source) {
  return a.arena[rank] + kCallRecordsBegin + source * sizeof(CallRecord);
}

// Word w of the record of this rank's launch `number`.
__device__ __forceinline__ unsigned int OwnCallWord(const KernelArguments& a, unsigned int number,
                                                    int w) {
  return w == 0 ? number : a.call.word[w] | (w == 2 ? number & 0xFFu : 0u);
}

// How long a launch waits, and what ends it before. One a thread. Its functions that are not inlined
// use few registers: a kernel needs theirs on top of its own.
class Patience {
 public:
  __device__ __forceinline__ explicit Patience(const KernelArguments& a)
      : arguments_(a), begin_ns_(GlobalTimerNs()) {}

  // The number of this launch. A block that starts when block 0 has counted it takes it for one more:
  // it compares no calls, which block 0 has done by then.
  __device__ __forceinline__ void set_number(unsigned int number) { number_ = number; }

  // Asked now and then by a thread that waits: whether it has to give up. Says why, once for all.
  __device__ __noinline__ bool IsOver(int peer, unsigned int step) {
    if (LoadWord(&ControlOf(arguments_, arguments_.rank)->poison) != 0) {
      HasGroupFailed(step);
      return true;
    }
    int absent = -1;
#pragma unroll 1
    for (int rank = 0; rank < COTUNE_WORLD_SIZE; ++rank) {
      if (rank == arguments_.rank) continue;
      const unsigned long long call =
          LoadRelaxedHalf(CallRecordAt(arguments_, arguments_.rank, rank));
      const auto ahead = static_cast<int>(static_cast<unsigned int>(call) - number_);
      if (ahead < 0) absent = rank;
      // Block 0 alone: another one may take the number for one more, see set_number.
      if (ahead != 0 || blockIdx.x != 0) continue;
      if (static_cast<unsigned int>(call >> 32) == arguments_.call.word[1]) continue;
      Fail(kMismatch, rank, step);
      return true;
    }
    if (LoadWord(&arguments_.abort->value) != 0) {
      Fail(kAborted, peer, step);
      return true;
    }
    if (GlobalTimerNs() - begin_ns_ <= arguments_.timeout_ns) return false;
    // The peer may itself wait for a rank that has not come.
    Fail(kTimeout, absent >= 0 ? absent : peer, step);
    return true;
  }

  // Whether a kernel of any rank has given up; this rank fails with the same reason.
  __device__ __noinline__ bool HasGroupFailed(unsigned int step) {
    const unsigned int poison = LoadWord(&ControlOf(arguments_, arguments_.rank)->poison);
    if (poison == 0) return false;
    if (IsFirst()) Write(poison, step);
    return true;
  }

  // This rank gives up, and all ranks with it.
  __device__ __noinline__ void Fail(FailureKind kind, int peer, unsigned int step) {
    if (!IsFirst()) return;
    const unsigned int poison = MakePoison(kind, arguments_.rank, peer);
#pragma unroll 1
    for (int rank = 0; rank < COTUNE_WORLD_SIZE; ++rank) {
      StoreWord(&ControlOf(arguments_, rank)->poison, poison);
    }
    Write(poison, step);
  }

 private:
  // The first failure of this rank counts, and one thread writes it down.
  __device__ __forceinline__ bool IsFirst() {
    return atomicCAS_system(&arguments_.failure->is_set, 0u, 2u) == 0u;
  }

  __device__ __forceinline__ void Write(unsigned int poison, unsigned int step) {
    FailureRecord* record = arguments_.failure;
    record->poison = poison;
    record->step = step;
    record->block = blockIdx.x;
    record->number = number_;
    // Often the one that makes another call than this rank.
    const int peer = PoisonPeer(poison);
    const int other = peer == arguments_.rank ? PoisonReporter(poison) : peer;
    record->other = other;
    const unsigned char* theirs = CallRecordAt(arguments_, arguments_.rank, other);
#pragma unroll 1
    for (int w = 0; w < 4; ++w) record->other_call.word[w] = LoadWord(theirs + 4 * w);
#pragma unroll 1
    for (int w = 0; w < 4; ++w) record->own_call.word[w] = arguments_.call.word[w];
    // The poison has reached every rank before this rank's host can see the failure.
    __threadfence_system();
    atomicExch_system(&record->is_set, 1u);
  }

  const KernelArguments& arguments_;
  unsigned long long begin_ns_;
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
