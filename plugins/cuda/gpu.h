// The GPU of one rank: driver, primary context and what choices depend on.
#ifndef COTUNE_PLUGINS_CUDA_GPU_H_
#define COTUNE_PLUGINS_CUDA_GPU_H_

#include <cstdint>
#include <memory>
#include <string>

#include "gpu/driver/cuda_driver.h"
#include "plugins/border/failure.h"

namespace cotune::cuda {

// Holds the primary context for its lifetime, so that it shares memory and streams with everything
// else in the process. Any thread; a thread makes the context current before it calls the driver.
class Gpu {
 public:
  // COTUNE_UNSUPPORTED: no driver, no such GPU, or one that is too old.
  static border::Result<std::unique_ptr<Gpu>> Open(int32_t ordinal);
  ~Gpu();
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  const gpu::CudaDriver& driver() const { return driver_; }
  gpu::CuContext context() const { return context_; }
  int32_t ordinal() const { return ordinal_; }
  // "sm_90".
  const std::string& architecture() const { return architecture_; }

  // A driver's result as this backend's: COTUNE_OUT_OF_RESOURCES when memory is used up, else
  // COTUNE_INTERNAL.
  border::Result<void> Check(gpu::CuResult code, const char* call) const;

 private:
  Gpu(const gpu::CudaDriver& driver, int32_t ordinal) : driver_(driver), ordinal_(ordinal) {}

  const gpu::CudaDriver driver_;
  const int32_t ordinal_;
  gpu::CuDevice device_ = 0;
  gpu::CuContext context_ = nullptr;
  std::string architecture_;
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_GPU_H_
