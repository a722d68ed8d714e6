#include "gpu/device/cuda_stream.h"

#include <cmath>
#include <thread>

#include "gpu/device/driver_status.h"

namespace cotune::gpu {

Result<std::unique_ptr<CudaStream>> CudaStream::Create(const CudaDriver& driver,
                                                       const Clock& clock) {
  std::unique_ptr<CudaStream> made(new CudaStream(driver, clock));
  Status done =
      Checked(driver, driver->StreamCreate(&made->stream_, kCuStreamNonBlocking), "cuStreamCreate");
  if (done) done = Checked(driver, driver->EventCreate(&made->start_, 0), "cuEventCreate");
  if (done) done = Checked(driver, driver->EventCreate(&made->end_, 0), "cuEventCreate");
  if (!done) return tl::make_unexpected(done.error());
  return made;
}

CudaStream::~CudaStream() {
  if (end_ != nullptr) driver_->EventDestroy(end_);
  if (start_ != nullptr) driver_->EventDestroy(start_);
  if (stream_ != nullptr) driver_->StreamDestroy(stream_);
}

Result<CuGraph> CudaStream::Capture(const std::function<Status()>& enqueue) {
  // Relaxed: a backend may ask the driver things meanwhile that a stricter mode forbids.
  if (Status s = Checked(driver_, driver_->StreamBeginCapture(stream_, kCuCaptureRelaxed),
                         "cuStreamBeginCapture");
      !s) {
    return tl::make_unexpected(s.error());
  }
  const Status enqueued = enqueue();
  CuGraph graph = nullptr;
  const Status ended =
      Checked(driver_, driver_->StreamEndCapture(stream_, &graph), "cuStreamEndCapture");
  if (enqueued && ended) return graph;
  if (graph != nullptr) driver_->GraphDestroy(graph);
  return tl::make_unexpected(enqueued ? ended.error() : enqueued.error());
}

Status CudaStream::RecordStart() {
  return Checked(driver_, driver_->EventRecord(start_, stream_), "cuEventRecord");
}

Status CudaStream::RecordEnd() {
  return Checked(driver_, driver_->EventRecord(end_, stream_), "cuEventRecord");
}

Result<TimedSpan> CudaStream::AwaitSpan(int64_t deadline_ns) {
  while (true) {
    const CuResult code = driver_->EventQuery(end_);
    if (code == kCuSuccess) break;
    if (code != kCuErrorNotReady) {
      return tl::make_unexpected(Checked(driver_, code, "the kernels of the call").error());
    }
    if (clock_.now_ns() >= deadline_ns) {
      return Fail(ErrorCode::kDeadline, "the GPU had not finished at the deadline");
    }
    std::this_thread::yield();
  }
  float elapsed_ms = 0;
  if (Status s = Checked(driver_, driver_->EventElapsedMs(&elapsed_ms, start_, end_),
                         "cuEventElapsedTime");
      !s) {
    return tl::make_unexpected(s.error());
  }
  return TimedSpan{0, static_cast<int64_t>(std::llround(static_cast<double>(elapsed_ms) * 1e6))};
}

}  // namespace cotune::gpu
