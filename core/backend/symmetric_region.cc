#include "core/backend/symmetric_region.h"

#include <algorithm>

#include "core/backend/captured_memory.h"
#include "fmt/format.h"

namespace cotune {
namespace {

constexpr uint64_t kAlignmentBytes = 256;

uint64_t RoundUp(uint64_t bytes) {
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

}  // namespace

Result<std::unique_ptr<SymmetricRegion>> SymmetricRegion::Create(Device& device,
                                                                 BackendGroups& groups,
                                                                 uint64_t bytes,
                                                                 int64_t deadline_ns) {
  std::unique_ptr<SymmetricRegion> region(new SymmetricRegion(device, groups));
  Result<std::unique_ptr<DeviceBuffer>> memory =
      Fail(ErrorCode::kUsage, "0 bytes are no memory to register");
  const Status attached = device.Attach();
  if (!attached) {
    memory = Propagate(attached);
  } else if (bytes > 0) {
    memory = device.AllocateShareable(bytes);
  }
  Status allocated;
  void* data = nullptr;
  if (memory) {
    region->memory_ = std::move(*memory);
    data = region->memory_->data();
  } else {
    allocated = Propagate(memory);
  }
  COTUNE_RETURN_IF_ERROR(groups.RegisterMemory(allocated, data, bytes, deadline_ns));
  region->is_registered_ = true;
  return region;
}

SymmetricRegion::~SymmetricRegion() {
  if (is_registered_) groups_.UnregisterMemory(memory_->data());
}

void SymmetricRegion::Retire(std::unique_ptr<SymmetricRegion> region, void* stream,
                             int64_t deadline_ns) {
  if (region == nullptr || region->device_.Synchronize(stream, deadline_ns)) return;
  // A kernel or copy may still be at it: to lose the memory is better than to lose the context.
  Abandon(std::move(region));
}

void SymmetricRegion::Abandon(std::unique_ptr<SymmetricRegion> region) {
  if (region == nullptr) return;
  LeaveToProcess(std::move(region->memory_));
  region->is_registered_ = false;
}

uint64_t SymmetricRegion::BytesFor(std::initializer_list<uint64_t> buffer_bytes) {
  uint64_t bytes = 0;
  for (const uint64_t each : buffer_bytes) bytes += RoundUp(each);
  return bytes;
}

Result<std::unique_ptr<DeviceBuffer>> SymmetricRegion::Take(uint64_t bytes) {
  if (memory_->bytes() - used_bytes_ < bytes) {
    return Fail(ErrorCode::kInternal,
                fmt::format("{} bytes are left of a symmetric region of {}, {} are asked for",
                            memory_->bytes() - used_bytes_, memory_->bytes(), bytes));
  }
  const uint64_t offset = used_bytes_;
  used_bytes_ = std::min(RoundUp(used_bytes_ + bytes), memory_->bytes());
  return device_.Part(*memory_, offset, bytes);
}

}  // namespace cotune
