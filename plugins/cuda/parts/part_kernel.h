// The input that the kernel of a part is compiled from.
#ifndef COTUNE_PLUGINS_CUDA_PARTS_PART_KERNEL_H_
#define COTUNE_PLUGINS_CUDA_PARTS_PART_KERNEL_H_

#include <string>

#include "plugins/cuda/compile/kernel_spec.h"
#include "plugins/cuda/parts/part_shape.h"

namespace cotune::cuda {

struct PartKernel {
  std::string program;  // the generated header, see part_text.h
  PartShape shape;
  bool uses_pdl = false;
};

KernelUnit UnitOf(const PartKernel& kernel);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_PARTS_PART_KERNEL_H_
