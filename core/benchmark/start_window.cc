#include "core/benchmark/start_window.h"

#include <algorithm>

namespace cotune {
namespace {

constexpr int64_t kWindowMaxNs = 5'000'000;
constexpr int32_t kInvalidSamplesMax = 16;
constexpr int64_t kLatenessMinNs = 2000;

}  // namespace

int64_t StartWindow::DelayNs(int64_t untimed_ns) const {
  // The untimed call may find all caches cold.
  return mode_ == StartMode::kWindow ? window_ns_ + 2 * untimed_ns : 0;
}

bool StartWindow::Accepts(const SampleSpan& sample, int64_t planned_start_ns) {
  const int64_t late_ns = sample.last_start_ns - planned_start_ns;
  const int64_t tolerated_ns = std::max(kLatenessMinNs, sample.span_ns / 20);
  if (planned_start_ns == 0 || late_ns <= tolerated_ns) return true;
  ++invalid_samples_;
  window_ns_ = std::min(window_ns_ * 2, kWindowMaxNs);
  // The cores are busy with something else: the samples' skew says by how much ranks start apart.
  if (invalid_samples_ >= kInvalidSamplesMax) mode_ = StartMode::kBarrier;
  return false;
}

}  // namespace cotune
