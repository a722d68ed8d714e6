// The memory that buffers lie in and how a run on it is timed.
#ifndef COTUNE_CORE_BACKEND_DEVICE_H_
#define COTUNE_CORE_BACKEND_DEVICE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/status.h"
#include "core/problem/problem.h"

namespace cotune {

// Memory of a device; freed with the object.
class DeviceBuffer {
 public:
  virtual ~DeviceBuffer() = default;
  virtual void* data() = 0;
  virtual uint64_t bytes() const = 0;
};

// When the timed calls of this rank began and ended: on the clock of this process, or from the
// common start on for a device that lines the ranks up itself.
struct TimedSpan {
  int64_t start_ns = 0;
  int64_t end_ns = 0;
};

// How fast a device runs at a moment.
struct DeviceClocks {
  int32_t sm_mhz = 0;
  std::vector<std::string> throttle_reasons{};  // why not faster, ascending; none: as it can
};

// The calls of one sample, made ready once: a CUDA device captures them in a graph, unless the plan
// cannot be captured. Destroyed before the plan and the buffers that they use.
class TimedCalls {
 public:
  virtual ~TimedCalls() = default;
  // Runs them back to back, beginning at start_ns (0: at once), and waits for the last. A start
  // time that has passed already shows in the span. A device that lines the ranks up itself begins
  // when all ranks have come with the same start_ns, which is later than all before. deadline_ns
  // bounds all of it.
  virtual Result<TimedSpan> Run(int64_t start_ns, int64_t deadline_ns) = 0;
};

// Not thread-safe: one thread measures.
class Device {
 public:
  virtual ~Device() = default;
  virtual MemoryKind kind() const = 0;
  // CUDA ordinal, -1 for host.
  virtual int32_t ordinal() const = 0;
  // The cudaStream_t that calls are enqueued on; nullptr for host memory.
  virtual void* stream() const = 0;
  // Makes the device that of the calling thread, which from now on is the one that uses it.
  virtual Status Attach() = 0;
  // Work that is enqueued on stream `after` from now on runs behind all that stream `before` holds
  // now. Nothing while either is being captured: inside a graph, order is the caller's.
  virtual Status OrderStreams(void* before, void* after) = 0;
  // Returns whether what is enqueued on the stream goes into a graph and does not run.
  virtual Result<bool> IsCapturing(void* /*stream*/) { return false; }
  // If the stream is being captured, the graph of the capture and all that is made from it keep
  // `held` until they are destroyed. The last one lets go of it on a thread that must not use the
  // device. Returns the number of the capture, or 0 if there is none; nothing more is held for the
  // capture `known`.
  virtual Result<uint64_t> HoldInGraph(void* /*stream*/, uint64_t /*known*/,
                                       const std::shared_ptr<const void>& /*held*/) {
    return uint64_t{0};
  }
  // Waits for everything that the stream holds. kDeadline: it had not run by then.
  virtual Status Synchronize(void* stream, int64_t deadline_ns) = 0;
  // "eager": calls one by one from the host; "graph": a CUDA graph of calls. Part of what a
  // measurement is keyed by.
  virtual std::string measuring_mode() const = 0;
  // Returns about how many bytes can be allocated now: for host memory by all ranks of the machine
  // together, for a GPU on this rank's. nullopt: not known.
  virtual std::optional<uint64_t> AvailableBytes() const = 0;
  // kEnvironment when there is no memory left.
  virtual Result<std::unique_ptr<DeviceBuffer>> Allocate(uint64_t bytes) = 0;
  // Memory that processes of other ranks can map, to be registered with backends; alive as long as
  // any of them has it mapped. kUnsupported: this device has none; kEnvironment as above.
  virtual Result<std::unique_ptr<DeviceBuffer>> AllocateShareable(uint64_t bytes) = 0;
  // Bytes [offset, offset + bytes) of a buffer, which outlives it.
  virtual std::unique_ptr<DeviceBuffer> Part(DeviceBuffer& whole, uint64_t offset,
                                             uint64_t bytes) = 0;
  virtual Status Write(DeviceBuffer& buffer, std::span<const std::byte> data) = 0;
  virtual Status Read(DeviceBuffer& buffer, std::span<std::byte> data) = 0;
  // Bytes [offset, offset + bytes) become `value`.
  virtual Status Fill(DeviceBuffer& buffer, uint64_t offset, uint64_t bytes, std::byte value) = 0;
  // All of `from`, into the front of a buffer that is not smaller.
  virtual Status Copy(DeviceBuffer& to, DeviceBuffer& from) = 0;
  // Whether two buffers of one size hold the same bytes.
  virtual Result<bool> Equal(DeviceBuffer& left, DeviceBuffer& right) = 0;
  // The last cache in front of this memory, the same on all ranks of the job. 0: timed calls need
  // not go round over buffers to find them where a program's calls do.
  virtual uint64_t cache_bytes() const = 0;
  // nullopt: not known. Takes about 0.1 ms.
  virtual std::optional<DeviceClocks> ReadClocks() = 0;
  // Whether the device itself lets all ranks begin a sample at the same moment.
  virtual bool aligns_ranks() const = 0;
  // One call as a program makes it, to its end; arguments.deadline_ns bounds it.
  virtual Result<TimedSpan> RunOnce(Plan& plan, const LaunchArguments& arguments) = 0;
  // `repetitions` calls of the plan, to be run many times: call i has arguments[i % size], of which
  // there is at least one. Local.
  virtual Result<std::unique_ptr<TimedCalls>> Prepare(Plan& plan,
                                                      std::span<const LaunchArguments> arguments,
                                                      int32_t repetitions) = 0;
};

// Host memory, aligned to 4096 bytes. The clock outlives it.
class Clock;
std::unique_ptr<Device> MakeHostDevice(const Clock& clock);

}  // namespace cotune

#endif  // COTUNE_CORE_BACKEND_DEVICE_H_
