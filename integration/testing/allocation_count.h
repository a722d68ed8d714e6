// Counts what this program allocates by operator new, for tests of paths that must not.
#ifndef COTUNE_INTEGRATION_TESTING_ALLOCATION_COUNT_H_
#define COTUNE_INTEGRATION_TESTING_ALLOCATION_COUNT_H_

#include <cstdint>

namespace cotune {

// Since the calling thread began, by it.
uint64_t AllocationCount();

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_TESTING_ALLOCATION_COUNT_H_
