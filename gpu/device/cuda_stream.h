// A stream with two events: what lies between them is timed.
#ifndef COTUNE_GPU_DEVICE_CUDA_STREAM_H_
#define COTUNE_GPU_DEVICE_CUDA_STREAM_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "core/backend/device.h"
#include "core/base/clock.h"
#include "core/base/status.h"
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
  // Waits for all that is in the stream. kDeadline: it has not ended.
  Status AwaitEnd(int64_t deadline_ns);

  // Transfers behind what is in the stream, to their end. What other streams of the process hold is
  // not waited for: a kernel there may wait for a lost rank for ever. kDeadline: what is in the
  // stream, or the transfer, has not ended.
  Status Write(CuDevicePointer to, const void* from, uint64_t bytes, int64_t deadline_ns);
  Status Read(void* to, CuDevicePointer from, uint64_t bytes, int64_t deadline_ns);
  Status Fill(CuDevicePointer to, uint8_t value, uint64_t bytes, int64_t deadline_ns);
  Status Copy(CuDevicePointer to, CuDevicePointer from, uint64_t bytes, int64_t deadline_ns);

 private:
  CudaStream(const CudaDriver& driver, const Clock& clock) : driver_(driver), clock_(clock) {}
  // Asks until the answer is another one than "not ready".
  Status AwaitReady(const std::function<CuResult()>& ask, const char* what,
                    int64_t deadline_ns) const;

  const CudaDriver& driver_;
  const Clock& clock_;
  CuStream stream_ = nullptr;
  CuEvent start_ = nullptr;
  CuEvent end_ = nullptr;
};

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DEVICE_CUDA_STREAM_H_
