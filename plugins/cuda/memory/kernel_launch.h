// Enqueues kernels.
#ifndef COTUNE_PLUGINS_CUDA_MEMORY_KERNEL_LAUNCH_H_
#define COTUNE_PLUGINS_CUDA_MEMORY_KERNEL_LAUNCH_H_

#include "plugins/cuda/memory/gpu.h"
#include "plugins/sdk/failure.h"

namespace cotune::cuda {

struct KernelLaunch {
  unsigned int blocks = 1;
  unsigned int threads = 1;  // in a block
  unsigned int cluster_blocks = 1;
  // The kernel may begin while the one before it on the stream runs, and waits for it by itself
  // (BeginLaunch in kernels/prelude.cuh).
  bool uses_pdl = false;
  void* stream = nullptr;
};

// [hot] parameters: the address of each parameter of the kernel, in order. The context of the GPU
// is current.
inline sdk::Result<void> LaunchKernel(const Gpu& gpu, gpu::CuFunction function, void** parameters,
                                      const KernelLaunch& launch) {
  gpu::CuLaunchAttribute attributes[2]{};
  unsigned int attribute_count = 0;
  if (launch.uses_pdl) {
    gpu::CuLaunchAttribute& attribute = attributes[attribute_count++];
    attribute.id = gpu::kCuLaunchProgrammaticStreamSerialization;
    attribute.value.programmatic_stream_serialization_allowed = 1;
  }
  if (launch.cluster_blocks > 1) {
    gpu::CuLaunchAttribute& attribute = attributes[attribute_count++];
    attribute.id = gpu::kCuLaunchClusterDimension;
    attribute.value.cluster_blocks = {launch.cluster_blocks, 1, 1};
  }
  const gpu::CuLaunchConfig config{launch.blocks,
                                   1,
                                   1,
                                   launch.threads,
                                   1,
                                   1,
                                   0,
                                   static_cast<gpu::CuStream>(launch.stream),
                                   attributes,
                                   attribute_count};
  return gpu.Check(gpu.driver()->LaunchKernel(&config, function, parameters, nullptr),
                   "cuLaunchKernelEx");
}

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_MEMORY_KERNEL_LAUNCH_H_
