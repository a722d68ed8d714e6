// The compiler for tests that compile kernels, and the architectures that they compile for.
#ifndef COTUNE_PLUGINS_CUDA_TESTING_FIND_NVRTC_H_
#define COTUNE_PLUGINS_CUDA_TESTING_FIND_NVRTC_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string_view>

#include "gpu/driver/library_search.h"
#include "plugins/cuda/compile/nvrtc.h"

namespace cotune::cuda {

// COTUNE_NVRTC names the library (bazel/nvidia.bzl sets it if `./dev setup` has installed NVRTC),
// else it is looked for; nullopt: there is none here.
inline std::optional<Nvrtc> FindNvrtc() {
  const char* named = std::getenv("COTUNE_NVRTC");
  auto nvrtc = Nvrtc::Open(named == nullptr ? "" : named, gpu::OwnEnvironment());
  if (nvrtc.has_value()) return *nvrtc;
  if (named != nullptr) ADD_FAILURE() << named << ": " << nvrtc.error().message;
  return std::nullopt;
}

// Returns true if kernels for the architecture are compiled in this run. Shapes are chosen on
// sm_90; the other architectures take minutes, and COTUNE_COMPILE_EACH_WORK asks for them
// (./dev test --all).
inline bool IsCompiledHere(std::string_view architecture) {
  return architecture == "sm_90" || std::getenv("COTUNE_COMPILE_EACH_WORK") != nullptr;
}

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_TESTING_FIND_NVRTC_H_
