#include "gpu/driver/graph_uses.h"

#include <chrono>
#include <thread>

namespace cotune::gpu {
namespace {

using Held = std::shared_ptr<const void>;

void LetGo(void* held) { delete static_cast<Held*>(held); }

}  // namespace

DriverResult<uint64_t> HoldInGraph(const CudaDriver& driver, CuStream stream, uint64_t known,
                                   const std::shared_ptr<const void>& held) {
  CuStreamCaptureStatus status = kCuCaptureNone;
  unsigned long long capture = 0;
  CuGraph graph = nullptr;
  const CuResult code =
      driver->StreamGetCaptureInfo(stream, &status, &capture, &graph, nullptr, nullptr);
  // The default stream reports this while another stream is captured, and belongs to no capture.
  if (code == kCuErrorStreamCaptureImplicit) return uint64_t{0};
  if (auto asked = driver.Check(code, "cuStreamGetCaptureInfo"); !asked) {
    return tl::unexpected(asked.error());
  }
  if (status != kCuCaptureActive) return uint64_t{0};
  if (capture == known) return uint64_t{capture};
  auto owned = std::make_unique<Held>(held);
  CuUserObject object = nullptr;
  auto done = driver.Check(
      driver->UserObjectCreate(&object, owned.get(), LetGo, 1, kCuUserObjectNoDestructorSync),
      "cuUserObjectCreate");
  if (!done) return tl::unexpected(done.error());
  static_cast<void>(owned.release());  // it belongs to the user object
  done = driver.Check(driver->GraphRetainUserObject(graph, object, 1, kCuGraphUserObjectMove),
                      "cuGraphRetainUserObject");
  if (!done) {
    driver->UserObjectRelease(object, 1);
    return tl::unexpected(done.error());
  }
  return uint64_t{capture};
}

void GraphUses::Add(const CudaDriver& driver, CuStream stream) {
  const auto capture = HoldInGraph(driver, stream, last_capture_, count_);
  if (!capture) {
    is_lasting_ = true;
  } else if (*capture != 0) {
    last_capture_ = *capture;
  }
}

bool GraphUses::IsAnyAtEnd() const {
  constexpr int kTriesMax = 100;
  for (int tries = 0; IsAny() && tries < kTriesMax; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return IsAny();
}

}  // namespace cotune::gpu
