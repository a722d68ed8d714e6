// The backend "nccl": NVIDIA's library as choices, on device memory.
#ifndef COTUNE_PLUGINS_NCCL_BACKEND_H_
#define COTUNE_PLUGINS_NCCL_BACKEND_H_

#include "plugins/api/cotune_backend_v1.h"

namespace cotune::nccl {

// Returns the table for the exported symbol of the plugin.
const cotune_backend_api_t* BackendApi();

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_BACKEND_H_
