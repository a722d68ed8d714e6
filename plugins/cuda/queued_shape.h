// Grids and parameters of rings and trees (Transport::kQueued), and what they should cost.
#ifndef COTUNE_PLUGINS_CUDA_QUEUED_SHAPE_H_
#define COTUNE_PLUGINS_CUDA_QUEUED_SHAPE_H_

#include <string>
#include <vector>

#include "plugins/border/problem.h"
#include "plugins/cuda/kernel_spec.h"
#include "plugins/cuda/shape.h"

namespace cotune::cuda {

// Whether there is such a kernel for the collective.
constexpr bool HasQueuedKernel(border::Collective collective, Algorithm algorithm) {
  const bool has_tree =
      collective == border::Collective::kAllReduce || collective == border::Collective::kBroadcast;
  return algorithm == Algorithm::kTree
             ? has_tree
             : algorithm == Algorithm::kRing && collective != border::Collective::kAllToAll;
}

// As ShapesFor, CanRun and CostUs, of a kernel that there is. Pure.
std::vector<Shape> QueuedShapes(const border::Problem& problem, const KernelSpec& spec);
bool CanRunQueued(const border::Problem& problem, const KernelSpec& spec, const Shape& shape);
double QueuedCostUs(const border::Problem& problem, const KernelSpec& spec);

// Why the problem is not done in this way; "": it can be. Pure.
std::string QueuedRefusal(const border::Problem& problem, Algorithm algorithm);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_QUEUED_SHAPE_H_
