#include "plugins/sdk/shared_scratch.h"

#include <algorithm>
#include <bit>
#include <new>

namespace cotune::sdk {
namespace {

constexpr std::align_val_t kCacheLine{64};
// No block is smaller, so that the plans of small calls share one as well.
constexpr uint64_t kSmallestBytes = 64 << 10;

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
  for (size_t larger = size; larger < blocks_.size(); ++larger) {
    if (Share share = blocks_[larger].lock()) return share;
  }
  Share share = Allocate(uint64_t{1} << size);
  blocks_[size] = share;
  return share;
}

}  // namespace cotune::sdk
