#include "integration/testing/allocation_count.h"

#include <cstdlib>
#include <new>

namespace {

// Counts in the calling thread only: the control channel's own thread may allocate at any time.
thread_local uint64_t allocations = 0;

}  // namespace

void* operator new(size_t size) {
  ++allocations;
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// std::stable_sort takes its buffer from here. A sanitizer's own version would return memory that
// the operator delete below must not free.
void* operator new(size_t size, const std::nothrow_t& /*tag*/) noexcept {
  ++allocations;
  return std::malloc(size == 0 ? 1 : size);
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace cotune {

uint64_t AllocationCount() { return allocations; }

}  // namespace cotune
