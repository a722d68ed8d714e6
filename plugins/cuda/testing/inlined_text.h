// Kernel sources with their headers in place of the lines that include them, for tests that compile
// many of them as one file.
#ifndef COTUNE_PLUGINS_CUDA_TESTING_INLINED_TEXT_H_
#define COTUNE_PLUGINS_CUDA_TESTING_INLINED_TEXT_H_

#include <string>

#include "plugins/cuda/compile/nvrtc.h"

namespace cotune::cuda {

// Each header once. Not prelude.cuh and the two headers that C++ includes, too (kernel_abi.h,
// part_abi.h): what stands for them has to stand before the text.
std::string InlinedText(const SourceText& source);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_TESTING_INLINED_TEXT_H_
