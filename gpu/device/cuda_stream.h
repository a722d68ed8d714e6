// A stream with two events: what lies between them is timed.
#ifndef COTUNE_GPU_DEVICE_CUDA_STREAM_H_
#define COTUNE_GPU_DEVICE_CUDA_STREAM_H_

#include <functional>
#include <memory>

#include "core/clock.h"
#include "core/device.h"
#include "core/status.h"
#include "gpu/driver/cuda_driver.h"

namespace cotune::gpu {

// One thread, with the device's context current on it. Driver and clock outlive it.
class CudaStream {
 public:
  static Result<std::unique_ptr<CudaStream>> Create(const CudaDriver& driver, const Clock& clock);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  CuStream handle() const { return stream_; }

  // The graph of what `enqueue` puts into the stream. The caller destroys it.
  Result<CuGraph> Capture(const std::function<Status()>& enqueue);

  Status RecordStart();
  Status RecordEnd();
  // Waits for the end that was recorded. The span begins at 0. kDeadline: it had not come.
  Result<TimedSpan> AwaitSpan(int64_t deadline_ns);

 private:
  CudaStream(const CudaDriver& driver, const Clock& clock) : driver_(driver), clock_(clock) {}

  const CudaDriver& driver_;
  const Clock& clock_;
  CuStream stream_ = nullptr;
  CuEvent start_ = nullptr;
  CuEvent end_ = nullptr;
};

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DEVICE_CUDA_STREAM_H_
