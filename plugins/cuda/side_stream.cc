#include "plugins/cuda/side_stream.h"

namespace cotune::cuda {
namespace {

using border::Result;

// 0: captures nothing. Numbers of captures are unique in a process.
Result<unsigned long long> CaptureOf(const Gpu& gpu, gpu::CuStream stream) {
  gpu::CuStreamCaptureStatus status = gpu::kCuCaptureNone;
  unsigned long long id = 0;
  const gpu::CuResult code =
      gpu.driver()->StreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr);
  // The default stream, while another stream captures, belongs to no capture.
  if (code == gpu::kCuErrorStreamCaptureImplicit) return 0ull;
  if (auto checked = gpu.Check(code, "cuStreamGetCaptureInfo"); !checked) {
    return tl::unexpected(checked.error());
  }
  return status == gpu::kCuCaptureNone ? 0ull : id;
}

}  // namespace

Result<std::unique_ptr<SideStream>> SideStream::Make(const Gpu& gpu) {
  std::unique_ptr<SideStream> made(new SideStream(gpu));
  const gpu::CudaDriver& driver = gpu.driver();
  auto done =
      gpu.Check(driver->StreamCreate(&made->stream_, gpu::kCuStreamNonBlocking), "cuStreamCreate");
  if (done) {
    done =
        gpu.Check(driver->EventCreate(&made->event_, gpu::kCuEventDisableTiming), "cuEventCreate");
  }
  if (!done) return tl::unexpected(done.error());
  return made;
}

SideStream::~SideStream() {
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  if (event_ != nullptr) gpu_.driver()->EventDestroy(event_);
  if (stream_ == nullptr) return;
  const auto capture = CaptureOf(gpu_, stream_);
  if (capture && *capture == 0) gpu_.driver()->StreamDestroy(stream_);
}

Result<gpu::CuStream> SideStream::Fork(gpu::CuStream stream) {
  is_forked_ = false;
  const auto own_capture = CaptureOf(gpu_, stream_);
  if (!own_capture) return tl::unexpected(own_capture.error());
  if (*own_capture != 0) {
    const auto capture = CaptureOf(gpu_, stream);
    if (!capture) return tl::unexpected(capture.error());
    if (*capture != *own_capture) return stream;
  }
  auto done = gpu_.Check(gpu_.driver()->EventRecord(event_, stream), "cuEventRecord");
  if (done) {
    done = gpu_.Check(gpu_.driver()->StreamWaitEvent(stream_, event_, 0), "cuStreamWaitEvent");
  }
  if (!done) return tl::unexpected(done.error());
  is_forked_ = true;
  return stream_;
}

Result<void> SideStream::Join(gpu::CuStream stream) {
  if (!is_forked_) return {};
  is_forked_ = false;
  auto done = gpu_.Check(gpu_.driver()->EventRecord(event_, stream_), "cuEventRecord");
  if (!done) return done;
  return gpu_.Check(gpu_.driver()->StreamWaitEvent(stream, event_, 0), "cuStreamWaitEvent");
}

}  // namespace cotune::cuda
