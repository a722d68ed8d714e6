// Grids and parameters of rings and trees (Transport::kQueued), and what they should cost.
#ifndef COTUNE_PLUGINS_CUDA_CHOICES_QUEUED_SHAPE_H_
#define COTUNE_PLUGINS_CUDA_CHOICES_QUEUED_SHAPE_H_

#include <string>
#include <vector>

#include "plugins/cuda/choices/shape.h"
#include "plugins/cuda/compile/kernel_spec.h"
#include "plugins/sdk/problem.h"

namespace cotune::cuda {

// Whether there is such a kernel for the collective.
constexpr bool HasQueuedKernel(sdk::Collective collective, Algorithm algorithm) {
  const bool has_tree =
      collective == sdk::Collective::kAllReduce || collective == sdk::Collective::kBroadcast;
  return algorithm == Algorithm::kTree
             ? has_tree
             : algorithm == Algorithm::kRing && collective != sdk::Collective::kAllToAll;
}

// As ShapesFor, CanRun and CostUs, of a kernel that there is. Pure.
std::vector<Shape> QueuedShapes(const sdk::Problem& problem, const KernelSpec& spec);
bool CanRunQueued(const sdk::Problem& problem, const KernelSpec& spec, const Shape& shape);
double QueuedCostUs(const sdk::Problem& problem, const KernelSpec& spec);

// Why the problem is not done in this way; "": it can be. Pure.
std::string QueuedRefusal(const sdk::Problem& problem, Algorithm algorithm);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_CHOICES_QUEUED_SHAPE_H_
