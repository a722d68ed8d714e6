#include "plugins/cuda/memory/side_stream.h"

namespace cotune::cuda {
namespace {

using sdk::Result;

Result<StreamCapture> CaptureOf(const Gpu& gpu, gpu::CuStream stream) {
  gpu::CuStreamCaptureStatus status = gpu::kCuCaptureNone;
  StreamCapture capture;
  const gpu::CuResult code =
      gpu.driver()->StreamGetCaptureInfo(stream, &status, &capture.id, nullptr, nullptr, nullptr);
  // The default stream, while another stream captures, belongs to no capture.
  if (code == gpu::kCuErrorStreamCaptureImplicit) return StreamCapture{};
  COTUNE_RETURN_IF_ERROR(gpu.Check(code, "cuStreamGetCaptureInfo"));
  if (status == gpu::kCuCaptureNone) return StreamCapture{};
  // The driver does not tell the number of a capture that was invalidated.
  capture.state = status == gpu::kCuCaptureActive ? StreamCapture::State::kActive
                                                  : StreamCapture::State::kInvalidated;
  return capture;
}

}  // namespace

bool CanFork(const StreamCapture& side, const StreamCapture& stream) {
  if (side.state == StreamCapture::State::kNone) return true;
  return side.state == StreamCapture::State::kActive &&
         stream.state == StreamCapture::State::kActive && side.id == stream.id;
}

Result<std::unique_ptr<SideStream>> SideStream::Make(const Gpu& gpu) {
  std::unique_ptr<SideStream> made(new SideStream(gpu));
  const gpu::CudaDriver& driver = gpu.driver();
  auto done =
      gpu.Check(driver->StreamCreate(&made->stream_, gpu::kCuStreamNonBlocking), "cuStreamCreate");
  if (done) {
    done =
        gpu.Check(driver->EventCreate(&made->event_, gpu::kCuEventDisableTiming), "cuEventCreate");
  }
  COTUNE_RETURN_IF_ERROR(done);
  return made;
}

SideStream::~SideStream() {
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  if (event_ != nullptr) gpu_.driver()->EventDestroy(event_);
  if (stream_ == nullptr) return;
  const auto capture = CaptureOf(gpu_, stream_);
  if (capture && capture->state == StreamCapture::State::kNone)
    gpu_.driver()->StreamDestroy(stream_);
}

Result<gpu::CuStream> SideStream::Fork(gpu::CuStream stream) {
  COTUNE_TRY(const auto own, CaptureOf(gpu_, stream_));
  COTUNE_TRY(const auto other, CaptureOf(gpu_, stream));
  if (!CanFork(own, other)) return stream;
  auto done = gpu_.Check(gpu_.driver()->EventRecord(event_, stream), "cuEventRecord");
  if (done) {
    done = gpu_.Check(gpu_.driver()->StreamWaitEvent(stream_, event_, 0), "cuStreamWaitEvent");
  }
  COTUNE_RETURN_IF_ERROR(done);
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
