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
  COTUNE_RETURN_IF_ERROR(done);
  return made;
}

CudaStream::~CudaStream() {
  if (end_ != nullptr) driver_->EventDestroy(end_);
  if (start_ != nullptr) driver_->EventDestroy(start_);
  if (stream_ != nullptr) driver_->StreamDestroy(stream_);
}

Result<CuGraph> CudaStream::Capture(const std::function<Status()>& enqueue) {
  // Relaxed: a backend may ask the driver things meanwhile that a stricter mode forbids.
  COTUNE_RETURN_IF_ERROR(Checked(driver_, driver_->StreamBeginCapture(stream_, kCuCaptureRelaxed),
                                 "cuStreamBeginCapture"));
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

Status CudaStream::AwaitReady(const std::function<CuResult()>& ask, const char* what,
                              int64_t deadline_ns) const {
  while (true) {
    const CuResult code = ask();
    if (code != kCuErrorNotReady) return Checked(driver_, code, what);
    if (clock_.now_ns() >= deadline_ns) {
      return Fail(ErrorCode::kDeadline, "the GPU had not finished at the deadline");
    }
    std::this_thread::yield();
  }
}

Status CudaStream::AwaitEnd(int64_t deadline_ns) {
  return AwaitReady([&] { return driver_->StreamQuery(stream_); }, "what is on the stream",
                    deadline_ns);
}

// Memory of the host that is not pinned goes through the driver's own, and in such a call the
// driver may wait for the stream: it has nothing to wait for where the stream has ended before.
Status CudaStream::Write(CuDevicePointer to, const void* from, uint64_t bytes,
                         int64_t deadline_ns) {
  Status done = AwaitEnd(deadline_ns);
  if (done) {
    done =
        Checked(driver_, driver_->CopyToDeviceAsync(to, from, bytes, stream_), "cuMemcpyHtoDAsync");
  }
  return done ? AwaitEnd(deadline_ns) : done;
}

Status CudaStream::Read(void* to, CuDevicePointer from, uint64_t bytes, int64_t deadline_ns) {
  Status done = AwaitEnd(deadline_ns);
  if (done) {
    done =
        Checked(driver_, driver_->CopyToHostAsync(to, from, bytes, stream_), "cuMemcpyDtoHAsync");
  }
  return done ? AwaitEnd(deadline_ns) : done;
}

Status CudaStream::Fill(CuDevicePointer to, uint8_t value, uint64_t bytes, int64_t deadline_ns) {
  const Status done =
      Checked(driver_, driver_->SetBytesAsync(to, value, bytes, stream_), "cuMemsetD8Async");
  return done ? AwaitEnd(deadline_ns) : done;
}

Status CudaStream::Copy(CuDevicePointer to, CuDevicePointer from, uint64_t bytes,
                        int64_t deadline_ns) {
  const Status done =
      Checked(driver_, driver_->CopyOnDeviceAsync(to, from, bytes, stream_), "cuMemcpyDtoDAsync");
  return done ? AwaitEnd(deadline_ns) : done;
}

Result<TimedSpan> CudaStream::AwaitSpan(int64_t deadline_ns) {
  COTUNE_RETURN_IF_ERROR(AwaitReady([&] { return driver_->EventQuery(end_); },
                                    "the kernels of the call", deadline_ns));
  float elapsed_ms = 0;
  COTUNE_RETURN_IF_ERROR(
      Checked(driver_, driver_->EventElapsedMs(&elapsed_ms, start_, end_), "cuEventElapsedTime"));
  return TimedSpan{0, static_cast<int64_t>(std::llround(static_cast<double>(elapsed_ms) * 1e6))};
}

}  // namespace cotune::gpu
