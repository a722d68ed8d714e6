// Grids and parameters in which a kernel is worth running, and what it should cost.
#ifndef COTUNE_PLUGINS_CUDA_CHOICES_SHAPE_H_
#define COTUNE_PLUGINS_CUDA_CHOICES_SHAPE_H_

#include <cstdint>
#include <vector>

#include "plugins/sdk/problem.h"

namespace cotune::cuda {

inline constexpr int kGridBlocksMax = 256;
inline constexpr int kBatchBlocksMax = 512;  // the same for kBatchedLeafModel

// How a kernel is launched, as far as its choice says so.
struct Shape {
  int blocks = 1;       // at most kGridBlocksMax, or kBatchBlocksMax
  int threads = 512;    // of a block
  int unroll = 1;       // packs of a thread at once
  int chunk_bytes = 0;  // of kernels that have chunks: see KernelArguments; else 0
  // `blocks` covers the whole problem in one step, as far as the largest grid and scratch allow.
  // The name of the choice has "blocks=fit" instead of a number, so that the winner of one size has
  // enough blocks at others.
  bool is_fitted = false;

  bool operator==(const Shape&) const = default;
};

// How a kernel cuts what its ranks send. Only the models below ask: rings, trees and copies cut in
// ways of their own.
enum class Shares : uint8_t {
  kNone,         // each rank sends each peer all that the peer needs of it
  kOfRanks,      // a share a rank, which adds it up and sends the result to all
  kOfReceivers,  // broadcast: a share a receiver, which gets it from the root and passes it on
};

// The shapes of a kernel. All functions are pure, for problems of two ranks or more.
struct ShapeModel {
  // Which parameters of a shape the names of choices hold. With kNone there is one shape a problem,
  // and the name says nothing of it.
  enum class Parameters : uint8_t { kNone, kGrid, kGridAndChunk };
  Parameters parameters;
  // The shapes that are listed for a problem, in a fixed order.
  std::vector<Shape> (*list)(const sdk::Problem& problem, Shares shares);
  // Whether the kernel can run in this shape: it is one that kernels are compiled for, and scratch
  // is large enough. Not called with kNone.
  bool (*can_run)(const sdk::Problem& problem, Shares shares, const Shape& shape);
  // A rough price in microseconds: exchanges one after the other, and bytes over the link.
  double (*cost_us)(const sdk::Problem& problem, Shares shares, const Shape& shape);
  // Blocks of that many threads and packs that cover the problem in one step, as far as the largest
  // grid and scratch allow. nullptr: the grid of this kernel is not fitted to the problem.
  int (*fitted_blocks)(const sdk::Problem& problem, Shares shares, int threads,
                       int unroll) = nullptr;
};

extern const ShapeModel kStepModel;  // data says itself when it is there
extern const ShapeModel kLeafModel;  // the same, with operations on each leaf of 8 elements
// The same for large data, with larger grids.
extern const ShapeModel kBatchedLeafModel;
extern const ShapeModel kFlaggedModel;   // chunks behind flags
extern const ShapeModel kZeroCopyModel;  // callers' buffers between two rounds of flags

// Packs of a thread at once for each peer, so that 4 to 8 are on their way: with more, kernels of
// several stages spill registers.
int UnrollFor(int world_size);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_CHOICES_SHAPE_H_
