// What every kernel that waits for peers needs: who they are, and when to give up.
#pragma once

#include "prelude.cuh"

namespace cotune::cuda {

constexpr int kPeers = COTUNE_WORLD_SIZE - 1;

// The time that a launch may take, and what ends it before. One a thread.
class Patience {
 public:
  __device__ __forceinline__ explicit Patience(const KernelArguments& a)
      : arguments_(a), begin_ns_(GlobalTimerNs()) {}

  // Asked now and then by a thread that waits: whether it has to give up. Says why, once for all.
  __device__ __noinline__ bool IsOver(int peer, unsigned int step) {
    const bool aborted = LoadWord(&arguments_.abort->value) != 0;
    const bool late = GlobalTimerNs() - begin_ns_ > arguments_.timeout_ns;
    if (!aborted && !late) return false;
    Fail(aborted ? kAborted : kTimeout, peer, step);
    return true;
  }

  // The first failure of this rank counts.
  __device__ __noinline__ void Fail(FailureKind kind, int peer, unsigned int step) {
    FailureRecord* record = arguments_.failure;
    if (atomicCAS_system(&record->is_set, 0u, 2u) != 0u) return;
    record->kind = kind;
    record->peer = peer;
    record->step = step;
    record->block = blockIdx.x;
    __threadfence_system();
    atomicExch_system(&record->is_set, 1u);
  }

 private:
  const KernelArguments& arguments_;
  unsigned long long begin_ns_;
};

// Peer q in ascending order of ranks without `rank`.
__device__ __forceinline__ int PeerAt(int q, int rank) { return q < rank ? q : q + 1; }

// Peers beginning with the next rank, so that every rank begins with another one.
__device__ __forceinline__ int PeerAfter(int rank, int hop) {
  const int peer = rank + 1 + hop;
  return peer < COTUNE_WORLD_SIZE ? peer : peer - COTUNE_WORLD_SIZE;
}

}  // namespace cotune::cuda
