#include "plugins/sdk/gpu/gpu.h"

#include <fmt/format.h>

#include <chrono>
#include <thread>

namespace cotune::sdk {

Result<std::unique_ptr<Gpu>> Gpu::Open(int32_t ordinal, int oldest_major) {
  if (ordinal < 0) return Fail(COTUNE_UNSUPPORTED, "it works on GPUs only, and the job has none");
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
  ComputeCapability& capability = made->capability_;
  const auto attribute = [&](int* value, gpu::CuDeviceAttribute id) {
    if (!done) return;
    done = made->Check((*driver)->DeviceGetAttribute(value, id, made->device_),
                       "cuDeviceGetAttribute");
  };
  attribute(&capability.major, gpu::kCuComputeCapabilityMajor);
  attribute(&capability.minor, gpu::kCuComputeCapabilityMinor);
  COTUNE_RETURN_IF_ERROR(done);
  if (capability.major < oldest_major) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("GPU {} has compute capability {}.{}: {}.0 or "
                            "newer is needed",
                            ordinal, capability.major, capability.minor, oldest_major));
  }
  made->architecture_ = fmt::format("sm_{}{}", capability.major, capability.minor);
  done = made->Check((*driver)->PrimaryContextRetain(&made->context_, made->device_),
                     "cuDevicePrimaryCtxRetain");
  COTUNE_RETURN_IF_ERROR(done);
  made->idle_wait_ = std::make_unique<gpu::IdleWait>(made->driver_, made->context_);
  return made;
}

Gpu::~Gpu() {
  const bool is_stuck = idle_wait_ != nullptr && idle_wait_->IsPending();
  if (context_ != nullptr && !is_stuck) driver_->PrimaryContextRelease(device_);
}

Result<void> Gpu::AwaitIdle(const cotune_host_t& host, int64_t deadline_ns) const {
  const auto code = idle_wait_->Await([&] { return host.now_ns(host.context); }, deadline_ns);
  if (code) return Check(*code, "cuCtxSynchronize");
  return Fail(COTUNE_DEADLINE_EXCEEDED,
              fmt::format("GPU {} has not ended what this process enqueued before: a kernel may "
                          "wait for a rank that is gone or late; have it end, or use a new process",
                          ordinal_));
}

Result<void> Gpu::AwaitStream(gpu::CuStream stream, const cotune_host_t& host,
                              int64_t deadline_ns) const {
  while (true) {
    const gpu::CuResult state = driver_->StreamQuery(stream);
    if (state != gpu::kCuErrorNotReady) return Check(state, "cuStreamQuery");
    if (host.now_ns(host.context) >= deadline_ns) {
      return Fail(COTUNE_DEADLINE_EXCEEDED,
                  fmt::format("GPU {} did not come to a group's work by the deadline: a kernel of "
                              "this process or another one keeps it",
                              ordinal_));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

Result<void> Gpu::Check(gpu::CuResult code, const char* call) const {
  const gpu::DriverResult<void> result = driver_.Check(code, call);
  if (result) return {};
  return Fail(code == gpu::kCuErrorOutOfMemory ? COTUNE_OUT_OF_RESOURCES : COTUNE_INTERNAL,
              fmt::format("GPU {}: {}", ordinal_, result.error().text), code);
}

}  // namespace cotune::sdk
