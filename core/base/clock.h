// Time as an argument: stages take a Clock, so that tests and the simulator own it.
#ifndef COTUNE_CORE_BASE_CLOCK_H_
#define COTUNE_CORE_BASE_CLOCK_H_

#include <cstdint>

namespace cotune {

// A monotonic clock of this process: a moment that another process has read from its own means
// nothing on it. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() const = 0;
  // At most now_ns(), and at most 20 ms less; for where reading the clock counts.
  virtual int64_t coarse_now_ns() const { return now_ns(); }
};

// CLOCK_MONOTONIC.
class MonotonicClock final : public Clock {
 public:
  int64_t now_ns() const override;
  int64_t coarse_now_ns() const override;
};

// The deadline that lies this far ahead; a time without end stays one.
constexpr int64_t DeadlineAfter(int64_t now_ns, int64_t duration_ns) {
  return duration_ns > INT64_MAX - now_ns ? INT64_MAX : now_ns + duration_ns;
}

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_CLOCK_H_
