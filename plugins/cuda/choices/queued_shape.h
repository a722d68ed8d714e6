// Grids and parameters of rings and trees (kernels/queues.cuh), and what they should cost.
#ifndef COTUNE_PLUGINS_CUDA_CHOICES_QUEUED_SHAPE_H_
#define COTUNE_PLUGINS_CUDA_CHOICES_QUEUED_SHAPE_H_

#include "plugins/cuda/choices/shape.h"

namespace cotune::cuda {

extern const ShapeModel kRingModel;
extern const ShapeModel kTreeModel;

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_CHOICES_QUEUED_SHAPE_H_
