// The host backend's function table, for use in the process without a shared library.
#ifndef COTUNE_PLUGINS_HOST_BACKEND_H_
#define COTUNE_PLUGINS_HOST_BACKEND_H_

#include "plugins/api/cotune_backend_v1.h"

namespace cotune::host {

// Collectives over memory that processes of one machine share. Constant; lives as long as the
// program.
const cotune_backend_api_t* BackendApi();

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_BACKEND_H_
