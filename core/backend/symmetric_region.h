// Memory for the operands of symmetric problems, registered once for all cells of a tune.
#ifndef COTUNE_CORE_BACKEND_SYMMETRIC_REGION_H_
#define COTUNE_CORE_BACKEND_SYMMETRIC_REGION_H_

#include <cstdint>
#include <initializer_list>
#include <memory>

#include "core/backend/backend_groups.h"
#include "core/backend/device.h"

namespace cotune {

// A piece of a device's memory that every backend with the memory extension has registered, and
// that buffers are cut from, at the same places on all ranks. Not thread-safe.
class SymmetricRegion {
 public:
  // Collective, the same bytes on all ranks. kUnsupported: the device has no memory that peers can
  // reach, or no backend takes any. The device and the groups outlive the region.
  static Result<std::unique_ptr<SymmetricRegion>> Create(Device& device, BackendGroups& groups,
                                                         uint64_t bytes, int64_t deadline_ns);
  // Unregisters; all ranks do it at the same place in the order of their calls, which are over.
  ~SymmetricRegion();
  // The same for calls that may not be over, after a failure: waits for the stream, and keeps the
  // memory for as long as the process lives when the stream has not run to its end by the deadline.
  static void Retire(std::unique_ptr<SymmetricRegion> region, void* stream, int64_t deadline_ns);
  // Leaves the memory to the process and its registration to the end of the groups, because a graph
  // uses them.
  static void Abandon(std::unique_ptr<SymmetricRegion> region);
  SymmetricRegion(const SymmetricRegion&) = delete;
  SymmetricRegion& operator=(const SymmetricRegion&) = delete;

  void* data() { return memory_->data(); }
  uint64_t left_bytes() const { return memory_->bytes() - used_bytes_; }

  // The size of a region for buffers of these sizes.
  static uint64_t BytesFor(std::initializer_list<uint64_t> buffer_bytes);

  // The next piece, aligned to 256 bytes; the region outlives it. kInternal when it is used up.
  Result<std::unique_ptr<DeviceBuffer>> Take(uint64_t bytes);
  // All pieces are gone: the next begins at the front again.
  void Reset() { used_bytes_ = 0; }

 private:
  SymmetricRegion(Device& device, BackendGroups& groups) : device_(device), groups_(groups) {}

  Device& device_;
  BackendGroups& groups_;
  std::unique_ptr<DeviceBuffer> memory_;
  bool is_registered_ = false;
  uint64_t used_bytes_ = 0;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BACKEND_SYMMETRIC_REGION_H_
