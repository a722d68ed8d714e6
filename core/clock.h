// Time as an argument: stages take a Clock, so that tests and the simulator own it.
#ifndef COTUNE_CORE_CLOCK_H_
#define COTUNE_CORE_CLOCK_H_

#include <cstdint>

namespace cotune {

// A monotonic clock that is common to all processes of one machine. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() const = 0;
};

// CLOCK_MONOTONIC.
class MonotonicClock final : public Clock {
 public:
  int64_t now_ns() const override;
};

}  // namespace cotune

#endif  // COTUNE_CORE_CLOCK_H_
