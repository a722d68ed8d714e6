// The cuda backend: own kernels over the memory of the ranks' GPUs.
#ifndef COTUNE_PLUGINS_CUDA_BACKEND_H_
#define COTUNE_PLUGINS_CUDA_BACKEND_H_

#include "plugins/api/cotune_backend_v1.h"

namespace cotune::cuda {

// The table of this backend, named "cuda". Settings: cuda.nvrtc_library, a path.
const cotune_backend_api_t* BackendApi();

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_BACKEND_H_
