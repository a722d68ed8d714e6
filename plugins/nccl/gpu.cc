#include "plugins/nccl/gpu.h"

#include <fmt/format.h>

namespace cotune::nccl {

using sdk::Fail;
using sdk::Result;

Result<std::unique_ptr<Gpu>> Gpu::Open(int32_t ordinal) {
  if (ordinal < 0) return Fail(COTUNE_UNSUPPORTED, "NCCL works on GPUs only, and the job has none");
  const gpu::DriverResult<gpu::CudaDriver> driver = gpu::CudaDriver::Open();
  if (!driver) return Fail(COTUNE_UNSUPPORTED, driver.error().text);
  std::unique_ptr<Gpu> made(new Gpu(*driver, ordinal));
  int count = 0;
  auto done = made->Check((*driver)->DeviceGetCount(&count), "cuDeviceGetCount");
  if (done && ordinal >= count) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("there is no GPU {}: the driver shows {} of them", ordinal, count));
  }
  if (done) done = made->Check((*driver)->DeviceGet(&made->device_, ordinal), "cuDeviceGet");
  if (done) {
    done = made->Check((*driver)->PrimaryContextRetain(&made->context_, made->device_),
                       "cuDevicePrimaryCtxRetain");
  }
  if (!done) return tl::unexpected(done.error());
  return made;
}

Gpu::~Gpu() {
  if (context_ != nullptr) driver_->PrimaryContextRelease(device_);
}

Result<void> Gpu::Check(gpu::CuResult code, const char* call) const {
  const gpu::DriverResult<void> result = driver_.Check(code, call);
  if (result) return {};
  return Fail(code == gpu::kCuErrorOutOfMemory ? COTUNE_OUT_OF_RESOURCES : COTUNE_INTERNAL,
              fmt::format("GPU {}: {}", ordinal_, result.error().text), code);
}

}  // namespace cotune::nccl
