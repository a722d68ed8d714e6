#include "core/clock.h"

#include <ctime>

namespace cotune {

int64_t MonotonicClock::now_ns() const {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace cotune
