// A driver's result as a status of the pipeline.
#ifndef COTUNE_GPU_DEVICE_DRIVER_STATUS_H_
#define COTUNE_GPU_DEVICE_DRIVER_STATUS_H_

#include "core/base/status.h"
#include "gpu/driver/cuda_driver.h"

namespace cotune::gpu {

// kEnvironment when memory is used up, else kInternal; the text is the driver's.
inline Status Checked(const CudaDriver& driver, CuResult code, const char* call) {
  const DriverResult<void> result = driver.Check(code, call);
  if (result) return {};
  return Fail(code == kCuErrorOutOfMemory ? ErrorCode::kEnvironment : ErrorCode::kInternal,
              result.error().text, "CUDA driver");
}

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DEVICE_DRIVER_STATUS_H_
