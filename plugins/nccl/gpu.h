// The GPU of one rank: driver and primary context.
#ifndef COTUNE_PLUGINS_NCCL_GPU_H_
#define COTUNE_PLUGINS_NCCL_GPU_H_

#include <cstdint>
#include <memory>

#include "gpu/driver/cuda_driver.h"
#include "plugins/sdk/failure.h"

namespace cotune::nccl {

// Holds the primary context for its lifetime: NCCL uses the runtime, which works in that one. Any
// thread; a thread makes the context current before it calls the driver or NCCL.
class Gpu {
 public:
  // COTUNE_UNSUPPORTED: no driver, or no such GPU.
  static sdk::Result<std::unique_ptr<Gpu>> Open(int32_t ordinal);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const gpu::CudaDriver& driver() const { return driver_; }
  gpu::CuContext context() const { return context_; }
  int32_t ordinal() const { return ordinal_; }

  // A driver's result as this backend's: COTUNE_OUT_OF_RESOURCES when memory is used up, else
  // COTUNE_INTERNAL.
  sdk::Result<void> Check(gpu::CuResult code, const char* call) const;

 private:
  Gpu(const gpu::CudaDriver& driver, int32_t ordinal) : driver_(driver), ordinal_(ordinal) {}

  const gpu::CudaDriver driver_;
  const int32_t ordinal_;
  gpu::CuDevice device_ = 0;
  gpu::CuContext context_ = nullptr;
};

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_GPU_H_
