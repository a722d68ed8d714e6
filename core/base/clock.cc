#include "core/base/clock.h"

#include <ctime>

namespace cotune {

namespace {

int64_t ReadNs(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace

int64_t MonotonicClock::now_ns() const { return ReadNs(CLOCK_MONOTONIC); }

int64_t MonotonicClock::coarse_now_ns() const { return ReadNs(CLOCK_MONOTONIC_COARSE); }

}  // namespace cotune
