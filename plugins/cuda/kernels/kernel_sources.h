// The sources of all kernels as text, for the compiler at run time.
#ifndef COTUNE_PLUGINS_CUDA_KERNELS_KERNEL_SOURCES_H_
#define COTUNE_PLUGINS_CUDA_KERNELS_KERNEL_SOURCES_H_

#include <span>

namespace cotune::cuda {

struct KernelFile {
  const char* name;  // as in #include lines
  const char* text;
};

extern const std::span<const KernelFile> kKernelFiles;

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_KERNELS_KERNEL_SOURCES_H_
