// The exported symbol of the fake backend's plugin.
#include "plugins/fake/fake_backend.h"

extern "C" COTUNE_EXPORT const cotune_backend_api_t* cotune_backend_query_v1(
    uint32_t /*host_abi_minor*/, cotune_error_t* /*refusal*/) {
  return cotune::fake::BackendApi();
}
