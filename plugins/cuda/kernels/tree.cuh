// Binary trees of ranks: who is above and below.
#pragma once

#include "queue_steps.cuh"

namespace cotune::cuda {

// The tree of this block, with `root` on top. The other ranks stand in the order in which they
// follow the root, `turn` places on: with another turn for each block all of them have children in
// some blocks, and links are used evenly.
class Tree {
 public:
  __device__ __forceinline__ Tree(int rank, int root, unsigned int turn)
      : root_(root), turn_(static_cast<int>(turn % kPeers)) {
    const int distance = (rank - root + COTUNE_WORLD_SIZE) % COTUNE_WORLD_SIZE;
    place_ = distance == 0 ? 0 : 1 + (distance - 1 - turn_ + kPeers) % kPeers;
  }

  __device__ __forceinline__ bool is_root() const { return place_ == 0; }
  // -1: none.
  __device__ __forceinline__ int parent() const {
    return place_ == 0 ? -1 : RankAt((place_ - 1) / 2);
  }
  __device__ __forceinline__ int child(int which) const {
    const int place = 2 * place_ + 1 + which;
    return place < COTUNE_WORLD_SIZE ? RankAt(place) : -1;
  }

 private:
  __device__ __forceinline__ int RankAt(int place) const {
    const int distance = place == 0 ? 0 : 1 + (place - 1 + turn_) % kPeers;
    return (root_ + distance) % COTUNE_WORLD_SIZE;
  }

  int root_;
  int turn_;
  int place_;
};

}  // namespace cotune::cuda
