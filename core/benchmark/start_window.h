// When the ranks begin a sample, and whether all of them did.
#ifndef COTUNE_CORE_BENCHMARK_START_WINDOW_H_
#define COTUNE_CORE_BENCHMARK_START_WINDOW_H_

#include <cstdint>

#include "core/benchmark/rank_spans.h"
#include "core/selection/verdict.h"

namespace cotune {

// Pure: every rank feeds it the same samples, so all use the same window. It is doubled by a miss
// that follows another one within 8 samples, and halved by 8 samples in a row without a miss: most
// misses are interruptions of one processor, and a long window makes each sample take longer. Once
// it has been doubled, it takes 16 samples in a row to halve it, so that a window that is just long
// enough is not left every 8 samples for one that is too short. The ranks line up behind the
// barrier only after too many misses.
class StartWindow {
 public:
  static constexpr int64_t kFirstWindowNs = 250'000;

  // window_ns: as an earlier race has left it. Ranks are released one after another, so that the
  // window of more ranks may become longer: 0.5 ms and 10 us for each rank.
  explicit StartWindow(StartMode mode, int64_t window_ns = kFirstWindowNs, int ranks = 0)
      : mode_(mode), window_ns_(window_ns), ranks_(ranks) {}

  // From the release of the ranks to the common start of a sample; 0: there is none. An untimed
  // call in front of the start takes about untimed_ns.
  int64_t DelayNs(int64_t untimed_ns) const;
  // Returns whether all ranks began in time, or together after it. planned_start_ns: 0 when none
  // was planned.
  bool Accepts(const SampleSpan& sample, int64_t planned_start_ns);

  StartMode mode() const { return mode_; }
  int64_t window_ns() const { return window_ns_; }
  int32_t invalid_samples() const { return invalid_samples_; }

 private:
  static constexpr int32_t kSteadySamples = 8;

  StartMode mode_;
  int64_t window_ns_;
  int ranks_;
  int32_t samples_to_halve_ = kSteadySamples;
  int32_t valid_in_a_row_ = 0;  // since the last miss
  int32_t misses_ = 0;          // less one for each 8 samples in a row without any
  int32_t invalid_samples_ = 0;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_START_WINDOW_H_
