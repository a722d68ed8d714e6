#include "core/benchmark/sample_size.h"

#include <algorithm>

namespace cotune {
namespace {

constexpr int64_t kCallsMax = 1000;
constexpr int64_t kCallsMin = 4;
constexpr int64_t kLongCallsMin = 3;
constexpr int64_t kLongCallsSamples = 10;
constexpr int64_t kTurnSamplesMax = 10;

}  // namespace

int32_t CallsOfSample(int64_t sample_ns, int64_t call_ns, int32_t copies, MemoryKind memory) {
  // 2.5 samples at most on host memory.
  const int64_t calls_min =
      memory == MemoryKind::kCuda
          ? std::clamp<int64_t>(sample_ns * kLongCallsSamples / call_ns, kLongCallsMin, kCallsMin)
          : std::clamp<int64_t>(sample_ns * 5 / 2 / call_ns, 1, kCallsMin);
  const int64_t calls = std::clamp(sample_ns / call_ns, calls_min, kCallsMax);
  const int64_t whole_turns = (calls + copies - 1) / copies * copies;
  const bool is_short = whole_turns * call_ns <= sample_ns * kTurnSamplesMax;
  return static_cast<int32_t>(is_short ? whole_turns : calls);
}

}  // namespace cotune
