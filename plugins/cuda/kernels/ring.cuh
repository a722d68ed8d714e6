// Rings of ranks: which one is next, and whose part of the data is where.
#pragma once

#include "queue_steps.cuh"

namespace cotune::cuda {

// So many chunks of a block go around at the same time: while one is on its way, the block works on
// the others. A rank that sends chunk after chunk needs a free slot for each until the next rank
// has come as far, hence less than the slots.
constexpr unsigned int kRingLanes = 4;
static_assert(kRingLanes < kQueueSlots);

// The ring of this block. Every other block goes the other way around, for hosts where each pair of
// GPUs has links of its own. Places are ranks, in the order of the ring.
class Ring {
 public:
  __device__ __forceinline__ explicit Ring(int rank)
      : is_backward_(blockIdx.x % 2 != 0), place_(RankAt(rank)) {}

  __device__ __forceinline__ int place() const { return place_; }
  // Counted from any place, not below -COTUNE_WORLD_SIZE.
  __device__ __forceinline__ int RankAt(int place) const {
    const int turned = (place + COTUNE_WORLD_SIZE) % COTUNE_WORLD_SIZE;
    return is_backward_ ? COTUNE_WORLD_SIZE - 1 - turned : turned;
  }
  __device__ __forceinline__ int next() const { return RankAt(place_ + 1); }
  __device__ __forceinline__ int previous() const { return RankAt(place_ - 1); }

 private:
  bool is_backward_;
  int place_;
};

// All chunks of the block, some at a time, each through steps 0, 1, ...: body(step, chunk). False
// from it ends all.
template <class Body>
__device__ __forceinline__ bool ForRingSteps(unsigned int chunks, int steps, Body body) {
  for (unsigned int first = 0; first < chunks; first += kRingLanes) {
    const unsigned int rest = chunks - first;
    const unsigned int lanes = rest < kRingLanes ? rest : kRingLanes;
    for (int step = 0; step < steps; ++step) {
      for (unsigned int lane = 0; lane < lanes; ++lane) {
        if (!body(step, first + lane)) return false;
      }
    }
  }
  return true;
}

}  // namespace cotune::cuda
