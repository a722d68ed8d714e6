// Memory that calls use which are captured in CUDA graphs: how long it must stay.
#ifndef COTUNE_CORE_BACKEND_CAPTURED_MEMORY_H_
#define COTUNE_CORE_BACKEND_CAPTURED_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/backend/device.h"

namespace cotune {

// Counts the graphs that use one thing. One thread.
class GraphUses {
 public:
  // Work that is enqueued on the stream uses it. If the device cannot hold it for the graph, the
  // use never ends.
  void Note(Device& device, void* stream);
  // Returns true while a graph lives that uses it.
  bool IsAny() const { return is_lasting_ || count_.use_count() > 1; }
  // The same for an end that frees the thing: a device lets go some time after a graph was
  // destroyed, which this waits for, 0.1 s at most.
  bool IsAnyAtEnd() const;

 private:
  std::shared_ptr<const int> count_ = std::make_shared<const int>(0);
  uint64_t last_capture_ = 0;
  bool is_lasting_ = false;
};

// The ranges of memory that are given back later if a graph uses them. It belongs to the job of all
// ranks and to those split from it together, because a call of one group may use memory of another.
// Any thread.
class CapturedMemory {
 public:
  // A range that is looked after for as long as this object lives; the device of its calls, and the
  // CapturedMemory, outlive it.
  class Range {
   public:
    Range(CapturedMemory& memory, const void* begin, uint64_t bytes);
    ~Range();
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;

    // Returns true while a graph lives that holds a call with an operand in the range.
    bool IsInGraph() const;
    // The same as GraphUses::IsAnyAtEnd. Other ranges are used meanwhile.
    bool IsInGraphAtEnd() const;
    const std::byte* begin() const { return begin_; }
    uint64_t bytes() const { return bytes_; }

   private:
    friend class CapturedMemory;
    CapturedMemory& memory_;
    const std::byte* const begin_;
    const uint64_t bytes_;
    GraphUses uses_;  // guarded by the mutex of memory_
  };

  // [hot] A call with these operands is about to be enqueued on the stream. An operand belongs to
  // the range that it begins in. Costs one load if there is no range.
  void Note(Device& device, void* stream, std::span<const void* const> operands) {
    if (range_count_.load(std::memory_order_relaxed) == 0) return;
    NoteInRanges(device, stream, operands);
  }

 private:
  void NoteInRanges(Device& device, void* stream, std::span<const void* const> operands);

  std::atomic<size_t> range_count_{0};
  mutable std::mutex mutex_;
  std::vector<Range*> ranges_;
};

// Leaves memory to the process, which never frees it: a graph or a kernel may still use it.
void LeaveToProcess(std::unique_ptr<DeviceBuffer> buffer);

}  // namespace cotune

#endif  // COTUNE_CORE_BACKEND_CAPTURED_MEMORY_H_
