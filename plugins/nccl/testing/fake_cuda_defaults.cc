// Every function of the driver's table, so that it can be opened; those that matter in a test are
// in testing/fake_cuda.cc and go before these.
#include "gpu/driver/cuda_driver.h"
#include "plugins/api/cotune_backend_v1.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

namespace cotune::gpu {

extern "C" {
#define COTUNE_DEFINE(member, symbol, arguments) \
  __attribute__((weak)) COTUNE_EXPORT CuResult symbol arguments { return kCuSuccess; }
COTUNE_CUDA_DRIVER_FUNCTIONS(COTUNE_DEFINE)
#undef COTUNE_DEFINE
}

}  // namespace cotune::gpu
