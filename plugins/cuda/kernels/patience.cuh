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

// In the arena of `rank`: the calls of `reporter`, which gave up, and of the peer that it names.
__device__ __forceinline__ unsigned char* FailedCallsAt(const KernelArguments& a, int rank,
                                                        int reporter) {
  return a.arena[rank] + kFailedCallsBegin + 2 * reporter * sizeof(CallRecord);
}

// The record of this rank's launch `number`.
__device__ __forceinline__ Pack OwnCall(const KernelArguments& a, unsigned int number) {
  const CallRecord& call = a.call;
  return Pack{{number, call.word[1], call.word[2] | (number & 0xFFu), call.word[3]}};
}

// Whether two records have the same number and are of different calls.
__device__ __forceinline__ bool IsOtherCall(const Pack& own, const Pack& theirs) {
  return theirs.word[0] == own.word[0] && theirs.word[1] != own.word[1];
}

// The time that a launch may take, and what ends it before. One a thread.
class Patience {
 public:
  __device__ __forceinline__ explicit Patience(const KernelArguments& a)
      : arguments_(a), begin_ns_(GlobalTimerNs()) {}

  // The number of this launch. A block that starts after block 0 has ended takes it for one more,
  // which compares as "the peers have not come yet"; block 0 has compared the calls by then.
  __device__ __forceinline__ void set_number(unsigned int number) { number_ = number; }

  // Asked now and then by a thread that waits: whether it has to give up. Says why, once for all.
  __device__ __noinline__ bool IsOver(int peer, unsigned int step) {
    if (HasGroupFailed(step)) return true;
    if (const int other = FindOtherCall(); other >= 0) {
      Fail(kMismatch, other, step);
      return true;
    }
    if (LoadWord(&arguments_.abort->value) != 0) {
      Fail(kAborted, peer, step);
      return true;
    }
    if (GlobalTimerNs() - begin_ns_ <= arguments_.timeout_ns) return false;
    // The peer may itself wait for a rank that has not come.
    const int absent = FindAbsentRank();
    Fail(kTimeout, absent >= 0 ? absent : peer, step);
    return true;
  }

  // Whether a kernel of any rank has given up; this rank fails with the same reason.
  __device__ __noinline__ bool HasGroupFailed(unsigned int step) {
    const unsigned int poison = LoadWord(&ControlOf(arguments_, arguments_.rank)->poison);
    if (poison == 0) return false;
    if (!IsFirst()) return true;
    __threadfence_system();  // the calls were written in front of the poison
    const unsigned char* calls =
        FailedCallsAt(arguments_, arguments_.rank, PoisonReporter(poison) % kRanksMax);
    Write(poison, step, LoadRelaxed(calls), LoadRelaxed(calls + sizeof(CallRecord)));
    return true;
  }

  // This rank gives up, and all ranks with it.
  __device__ __noinline__ void Fail(FailureKind kind, int peer, unsigned int step) {
    if (!IsFirst()) return;
    const unsigned int poison = MakePoison(kind, arguments_.rank, peer);
    const Pack own = OwnCall(arguments_, number_);
    const Pack theirs = WholeCallOf(peer);
#pragma unroll 1
    for (int rank = 0; rank < COTUNE_WORLD_SIZE; ++rank) {
      unsigned char* calls = FailedCallsAt(arguments_, rank, arguments_.rank);
      StoreRelaxed(calls, own);
      StoreRelaxed(calls + sizeof(CallRecord), theirs);
    }
    __threadfence_system();
#pragma unroll 1
    for (int rank = 0; rank < COTUNE_WORLD_SIZE; ++rank) {
      unsigned int* word = &ControlOf(arguments_, rank)->poison;
      if (LoadWord(word) == 0) StoreWord(word, poison);
    }
    Write(poison, step, own, theirs);
  }

 private:
  // The first failure of this rank counts, and one thread writes it down.
  __device__ __forceinline__ bool IsFirst() {
    return atomicCAS_system(&arguments_.failure->is_set, 0u, 2u) == 0u;
  }

  __device__ __forceinline__ void Write(unsigned int poison, unsigned int step,
                                        const Pack& reporter_call, const Pack& peer_call) {
    FailureRecord* record = arguments_.failure;
    record->kind = PoisonKind(poison);
    record->reporter = PoisonReporter(poison);
    record->peer = PoisonPeer(poison);
    record->step = step;
    record->block = blockIdx.x;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      record->reporter_call.word[w] = reporter_call.word[w];
      record->peer_call.word[w] = peer_call.word[w];
    }
    // The poison has reached every rank before this rank's host can see the failure.
    __threadfence_system();
    atomicExch_system(&record->is_set, 1u);
  }

  // A rank that makes another call than this one; -1: none has been seen.
  __device__ __forceinline__ int FindOtherCall() const {
    const Pack own = OwnCall(arguments_, number_);
#pragma unroll 1
    for (int rank = 0; rank < COTUNE_WORLD_SIZE; ++rank) {
      if (rank == arguments_.rank) continue;
      if (IsOtherCall(own, LoadRelaxed(CallRecordAt(arguments_, arguments_.rank, rank)))) {
        return rank;
      }
    }
    return -1;
  }

  // A rank that has not begun this launch; -1: all have.
  __device__ __forceinline__ int FindAbsentRank() const {
#pragma unroll 1
    for (int rank = 0; rank < COTUNE_WORLD_SIZE; ++rank) {
      if (rank == arguments_.rank) continue;
      const Pack theirs = LoadRelaxed(CallRecordAt(arguments_, arguments_.rank, rank));
      if (static_cast<int>(theirs.word[0] - number_) < 0) return rank;
    }
    return -1;
  }

  // The halves of a record may arrive one after the other: waits for the second one, but not long.
  __device__ __forceinline__ Pack WholeCallOf(int rank) const {
    const unsigned char* record = CallRecordAt(arguments_, arguments_.rank, rank);
    Pack call = LoadRelaxed(record);
#pragma unroll 1
    for (int polls = 0; ((call.word[0] ^ call.word[2]) & 0xFFu) != 0 && polls < 1024; ++polls) {
      call = LoadRelaxed(record);
    }
    return call;
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
