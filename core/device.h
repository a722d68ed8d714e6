// The memory that buffers lie in and how a run on it is timed.
#ifndef COTUNE_CORE_DEVICE_H_
#define COTUNE_CORE_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/backend.h"
#include "core/problem.h"
#include "core/status.h"

namespace cotune {

// Memory of a device; freed with the object.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual void* data() = 0;
  virtual uint64_t bytes() const = 0;
};

// When the timed calls of this rank began and ended, on the clock that the ranks of one machine
// share.
struct TimedSpan {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

// Not thread-safe: one thread measures.
class Device {
 public:
  virtual ~Device() = default;
  virtual MemoryKind kind() const = 0;
  // CUDA ordinal, -1 for host.
  virtual int32_t ordinal() const = 0;
  // "eager": calls one by one from the host; "graph": a CUDA graph of calls. Part of what a
  // measurement is keyed by.
  virtual std::string measuring_mode() const = 0;
  // kEnvironment when there is no memory left.
  virtual Result<std::unique_ptr<DeviceBuffer>> Allocate(uint64_t bytes) = 0;
  virtual Status Write(DeviceBuffer& buffer, std::span<const std::byte> data) = 0;
  virtual Status Read(DeviceBuffer& buffer, std::span<std::byte> data) = 0;
  // Runs the plan `repetitions` times back to back, beginning at start_ns (0: at once), and waits
  // for the last. A start time that has passed already shows in the span. arguments.deadline_ns
  // bounds all of it.
  virtual Result<TimedSpan> Measure(Plan& plan, const LaunchArguments& arguments,
                                    int32_t repetitions, int64_t start_ns) = 0;
};

// Host memory, aligned to 4096 bytes. The clock outlives it.
class Clock;
std::unique_ptr<Device> MakeHostDevice(const Clock& clock);

}  // namespace cotune

#endif  // COTUNE_CORE_DEVICE_H_
