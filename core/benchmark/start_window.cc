#include "core/benchmark/start_window.h"

#include <algorithm>

namespace cotune {
namespace {

constexpr int64_t kWindowMinNs = 62'500;
constexpr int64_t kWindowMaxNs = 500'000;
constexpr int64_t kReleaseNs = 10'000;  // for each rank
constexpr int32_t kSamplesToHalveAgain = 16;
constexpr int32_t kMissesMax = 8;
constexpr int64_t kLatenessMinNs = 2000;

}  // namespace

int64_t StartWindow::DelayNs(int64_t untimed_ns) const {
  // The untimed call may find all caches cold.
  return mode_ == StartMode::kWindow ? window_ns_ + 2 * untimed_ns : 0;
}

bool StartWindow::Accepts(const SampleSpan& sample, int64_t planned_start_ns) {
  // Ranks that are late together have begun together, for example after an untimed call.
  const int64_t late_ns = std::min(sample.last_start_ns - planned_start_ns, sample.skew_ns);
  const int64_t tolerated_ns = std::max(kLatenessMinNs, sample.span_ns / 20);
  if (planned_start_ns == 0) return true;
  if (late_ns <= tolerated_ns) {
    ++valid_in_a_row_;
    if (valid_in_a_row_ % kSteadySamples == 0) misses_ = std::max(misses_ - 1, 0);
    if (valid_in_a_row_ % samples_to_halve_ == 0) {
      window_ns_ = std::max(window_ns_ / 2, kWindowMinNs);
    }
    return true;
  }
  ++invalid_samples_;
  ++misses_;
  if (valid_in_a_row_ < kSteadySamples) {
    window_ns_ = std::min(window_ns_ * 2, kWindowMaxNs + ranks_ * kReleaseNs);
    samples_to_halve_ = kSamplesToHalveAgain;
  }
  valid_in_a_row_ = 0;
  // The cores are busy with something else: the samples' skew says by how much ranks start apart.
  if (misses_ >= kMissesMax) mode_ = StartMode::kBarrier;
  return false;
}

}  // namespace cotune
