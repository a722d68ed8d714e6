// The backend's function table, for use in the process without a shared library.
#ifndef COTUNE_PLUGINS_UCX_BACKEND_H_
#define COTUNE_PLUGINS_UCX_BACKEND_H_

#include "plugins/api/cotune_backend_v1.h"

namespace cotune::ucx {

// Collectives on host memory over UCX's tagged messages. Constant; lives as long as the program.
const cotune_backend_api_t* BackendApi();

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_BACKEND_H_
