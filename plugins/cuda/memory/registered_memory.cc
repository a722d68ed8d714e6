#include "plugins/cuda/memory/registered_memory.h"

#include <fmt/format.h>

#include <iterator>

namespace cotune::cuda {

using sdk::Fail;
using sdk::Result;

namespace {

uintptr_t Number(const void* address) { return reinterpret_cast<uintptr_t>(address); }

}  // namespace

Result<void> RegisteredMemory::Check(const void* begin, uint64_t bytes) const {
  const uintptr_t here = Number(begin);
  // The first that begins behind the new one, and the one before it.
  const auto next = ranges_.lower_bound(here);
  const bool meets_next = next != ranges_.end() && next->first - here < bytes;
  const bool meets_last =
      next != ranges_.begin() && here - std::prev(next)->first < std::prev(next)->second.bytes;
  if (bytes == 0 || meets_next || meets_last) {
    return Fail(COTUNE_INVALID_ARGUMENT,
                fmt::format("{} bytes at {:#x} cannot be registered: {}", bytes, here,
                            bytes == 0 ? "there is nothing to register"
                                       : "some of them are registered already"));
  }
  return {};
}

Result<void> RegisteredMemory::Add(const AddressOnRanks& begin, int rank, uint64_t bytes) {
  const unsigned char* here = begin[static_cast<size_t>(rank)];
  if (auto fits = Check(here, bytes); !fits) return fits;
  ranges_.emplace(Number(here), Range{begin, bytes});
  return {};
}

void RegisteredMemory::Remove(const void* begin) { ranges_.erase(Number(begin)); }

Result<AddressOnRanks> RegisteredMemory::Find(const void* data, uint64_t bytes) const {
  const uintptr_t here = Number(data);
  const auto next = ranges_.upper_bound(here);
  const Range* range = next == ranges_.begin() ? nullptr : &std::prev(next)->second;
  const uint64_t offset = range == nullptr ? 0 : here - std::prev(next)->first;
  if (range == nullptr || offset > range->bytes || bytes > range->bytes - offset) {
    return Fail(COTUNE_INVALID_ARGUMENT,
                fmt::format("the buffer of {} bytes at {:#x} is not registered: the plan was made "
                            "for memory that all ranks registered",
                            bytes, here));
  }
  AddressOnRanks found = range->begin;
  for (unsigned char*& address : found) {
    if (address != nullptr) address += offset;
  }
  return found;
}

}  // namespace cotune::cuda
