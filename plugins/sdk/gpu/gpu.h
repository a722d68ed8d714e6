// The GPU of one rank: driver, primary context and compute capability.
#ifndef COTUNE_PLUGINS_SDK_GPU_GPU_H_
#define COTUNE_PLUGINS_SDK_GPU_GPU_H_

#include <cstdint>
#include <memory>
#include <string>

#include "gpu/driver/cuda_driver.h"
#include "gpu/driver/idle_wait.h"
#include "plugins/api/cotune_backend_v1.h"
#include "plugins/sdk/failure.h"

namespace cotune::sdk {

struct ComputeCapability {
  int major = 0;
  int minor = 0;
};

// Holds the primary context for its lifetime, so that it shares memory and streams with everything
// else in the process, the CUDA runtime among it. Any thread; a thread makes the context current
// before it calls the driver.
class Gpu {
 public:
  // COTUNE_UNSUPPORTED: no driver, no such GPU, or one whose major compute capability is lower than
  // the oldest.
  static Result<std::unique_ptr<Gpu>> Open(int32_t ordinal, int oldest_major = 0);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const gpu::CudaDriver& driver() const { return driver_; }
  gpu::CuContext context() const { return context_; }
  int32_t ordinal() const { return ordinal_; }
  // "sm_90".
  const std::string& architecture() const { return architecture_; }
  const ComputeCapability& capability() const { return capability_; }

  // A driver's result as this backend's: COTUNE_OUT_OF_RESOURCES when memory is used up, else
  // COTUNE_INTERNAL.
  Result<void> Check(gpu::CuResult code, const char* call) const;

  // Waits for all that this process has enqueued on the GPU so far, by whatever library.
  // COTUNE_DEADLINE_EXCEEDED: it has not ended by then. The context is current.
  Result<void> AwaitIdle(const cotune_host_t& host, int64_t deadline_ns) const;
  // A wait for the GPU was in vain, and still is: nothing is freed, because the driver's calls for
  // that would wait as well.
  bool IsStuck() const { return idle_wait_->IsPending(); }
  // The same for one stream.
  Result<void> AwaitStream(gpu::CuStream stream, const cotune_host_t& host,
                           int64_t deadline_ns) const;

 private:
  Gpu(const gpu::CudaDriver& driver, int32_t ordinal) : driver_(driver), ordinal_(ordinal) {}

  const gpu::CudaDriver driver_;
  const int32_t ordinal_;
  gpu::CuDevice device_ = 0;
  gpu::CuContext context_ = nullptr;
  std::string architecture_;
  ComputeCapability capability_;
  std::unique_ptr<gpu::IdleWait> idle_wait_;
};

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_GPU_GPU_H_
