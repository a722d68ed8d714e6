#include "plugins/sdk/shared_scratch.h"

#include <algorithm>
#include <bit>
#include <new>

namespace cotune::sdk {
namespace {

constexpr std::align_val_t kCacheLine{64};
// No block is smaller, so that the plans of small calls share one as well.
constexpr uint64_t kSmallestBytes = 64 << 10;
// A plan takes no block that is more than 16 times as large as one of its own, so that it does not
// keep the memory of a much larger plan when that one has gone.
constexpr size_t kLargerSizes = 4;

SharedScratch::Share Allocate(uint64_t bytes) {
  auto* memory = static_cast<std::byte*>(::operator new(bytes, kCacheLine));
  return {memory, [](std::byte* block) { ::operator delete(block, kCacheLine); }};
}

}  // namespace

SharedScratch::Share SharedScratch::Take(uint64_t bytes) {
  if (bytes == 0) return nullptr;
  // No machine has so much memory.
  if (bytes > uint64_t{1} << 62) throw std::bad_alloc();
  const auto size = static_cast<size_t>(std::bit_width(std::max(bytes, kSmallestBytes) - 1));
  const std::lock_guard lock(mutex_);
  const size_t end = std::min(size + kLargerSizes + 1, blocks_.size());
  for (size_t larger = size; larger < end; ++larger) {
    if (Share share = blocks_[larger].lock()) return share;
  }
  Share share = Allocate(uint64_t{1} << size);
  blocks_[size] = share;
  return share;
}

}  // namespace cotune::sdk
