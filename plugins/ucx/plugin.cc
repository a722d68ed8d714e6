// The one symbol that the shared library exports.
#include "plugins/api/cotune_backend_v1.h"
#include "plugins/ucx/backend.h"

extern "C" COTUNE_EXPORT const cotune_backend_api_t* cotune_backend_query_v1(
    uint32_t /*host_abi_minor*/, cotune_error_t* /*refusal*/) {
  return cotune::ucx::BackendApi();
}
