// Grids and parameters in which a kernel is worth running, and what it should cost.
#ifndef COTUNE_PLUGINS_CUDA_CHOICES_SHAPE_H_
#define COTUNE_PLUGINS_CUDA_CHOICES_SHAPE_H_

#include <vector>

#include "plugins/cuda/compile/kernel_spec.h"
#include "plugins/sdk/problem.h"

namespace cotune::cuda {

// How a kernel is launched, as far as its choice says so.
struct Shape {
  int blocks = 1;
  int threads = 512;    // of a block
  int unroll = 1;       // packs of a thread at once
  int chunk_bytes = 0;  // of transports that have chunks: see KernelArguments; else 0

  bool operator==(const Shape&) const = default;
};

// Those that are listed for a problem, in a fixed order; `spec` says which kernel, its own threads
// and unroll do not matter. Pure.
std::vector<Shape> ShapesFor(const sdk::Problem& problem, const KernelSpec& spec);
// Packs of a thread at once for each peer, so that 4 to 8 are on their way: with more, kernels of
// several stages spill registers.
int UnrollFor(int world_size);

// Whether the kernel can run in this shape: it is one that kernels are compiled for, and scratch is
// large enough. Pure.
bool CanRun(const sdk::Problem& problem, const KernelSpec& spec, const Shape& shape);

// A rough price in microseconds: exchanges one after the other, and bytes over the link. Pure.
double CostUs(const sdk::Problem& problem, const KernelSpec& spec, const Shape& shape);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_CHOICES_SHAPE_H_
