#include "core/backend/captured_memory.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace cotune {
namespace {

// Asks again for a while: a device lets go some time after a graph was destroyed.
template <typename IsUsed>
bool StaysAtEnd(const IsUsed& is_used) {
  constexpr int kTriesMax = 100;
  for (int tries = 0; is_used(); ++tries) {
    if (tries == kTriesMax) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace

void GraphUses::Note(Device& device, void* stream) {
  const Result<uint64_t> capture = device.HoldInGraph(stream, last_capture_, count_);
  if (!capture) {
    is_lasting_ = true;
  } else if (*capture != 0) {
    last_capture_ = *capture;
  }
}

CapturedMemory::Range::Range(CapturedMemory& memory, const void* begin, uint64_t bytes)
    : memory_(memory), begin_(static_cast<const std::byte*>(begin)), bytes_(bytes) {
  const std::lock_guard lock(memory_.mutex_);
  memory_.ranges_.push_back(this);
  memory_.range_count_ = memory_.ranges_.size();
}

CapturedMemory::Range::~Range() {
  const std::lock_guard lock(memory_.mutex_);
  std::erase(memory_.ranges_, this);
  memory_.range_count_ = memory_.ranges_.size();
}

bool GraphUses::IsAnyAtEnd() const {
  return StaysAtEnd([this] { return IsAny(); });
}

bool CapturedMemory::Range::IsInGraphAtEnd() const {
  return StaysAtEnd([this] { return IsInGraph(); });
}

bool CapturedMemory::Range::IsInGraph() const {
  const std::lock_guard lock(memory_.mutex_);
  return uses_.IsAny();
}

void CapturedMemory::NoteInRanges(Device& device, void* stream,
                                  std::span<const void* const> operands) {
  const Result<bool> is_captured = device.IsCapturing(stream);
  // If the question fails, so does the launch that follows.
  if (!is_captured || !*is_captured) return;
  const std::lock_guard lock(mutex_);
  for (Range* range : ranges_) {
    const bool is_used = std::any_of(operands.begin(), operands.end(), [&](const void* operand) {
      const auto address = reinterpret_cast<uintptr_t>(operand);
      const auto begin = reinterpret_cast<uintptr_t>(range->begin_);
      return address >= begin && address - begin < range->bytes_;
    });
    if (is_used) range->uses_.Note(device, stream);
  }
}

void LeaveToProcess(std::unique_ptr<DeviceBuffer> buffer) {
  static std::mutex mutex;
  // Never destroyed, so that the memory is not lost but kept.
  static auto* const kept = new std::vector<std::unique_ptr<DeviceBuffer>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(buffer));
}

}  // namespace cotune
