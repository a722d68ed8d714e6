#include "core/backend/temporaries.h"

#include <algorithm>
#include <utility>

namespace cotune {

Result<std::byte*> Temporaries::Take(uint64_t bytes) {
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  const uint64_t largest = blocks_.empty() ? 0 : blocks_.back()->bytes();
  if (largest < bytes) {
    // Twice the last one, so that calls that grow little by little leave few blocks behind.
    Result<std::unique_ptr<DeviceBuffer>> block = device_.Allocate(std::max(bytes, 2 * largest));
    if (!block && 2 * largest > bytes) block = device_.Allocate(bytes);
    COTUNE_RETURN_IF_ERROR(block);
    blocks_.push_back(std::move(*block));
  }
  return static_cast<std::byte*>(blocks_.back()->data());
}

Temporaries::~Temporaries() {
  if (!uses_.IsAnyAtEnd()) return;
  for (auto& block : blocks_) LeaveToProcess(std::move(block));
}

void Temporaries::NoteCall(void* stream) {
  if (bytes() > 0) uses_.Note(device_, stream);
}

uint64_t Temporaries::bytes() const {
  const std::lock_guard lock(mutex_);
  uint64_t bytes = 0;
  for (const auto& block : blocks_) bytes += block->bytes();
  return bytes;
}

}  // namespace cotune
