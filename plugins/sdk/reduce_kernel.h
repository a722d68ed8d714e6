// Reduces several arrays into one, element by element, with the widest vectors of this processor.
#ifndef COTUNE_PLUGINS_SDK_REDUCE_KERNEL_H_
#define COTUNE_PLUGINS_SDK_REDUCE_KERNEL_H_

#include <cstddef>
#include <cstdint>

#include "plugins/sdk/element_type.h"

namespace cotune::sdk {

inline constexpr int kMaxSources = 64;

// One reduction of `count` elements. Arrays need no alignment; a destination may be exactly one of
// the sources, and otherwise overlaps none. Every array holds elements of the caller's type, or,
// where its "partial" bit is set, f32 partial results of a 16-bit float type (the bit means nothing
// for the other types, whose partial results are ordinary elements).
struct ReduceArguments {
  void* destination = nullptr;
  void* second_destination = nullptr;  // null, or gets the same values
  bool destination_partial = false;
  bool second_destination_partial = false;
  uint32_t source_count = 0;         // 1 to kMaxSources
  uint64_t source_partial_mask = 0;  // bit i: sources[i] holds partial results
  size_t count = 0;
  int32_t divisor = 1;  // not 1: the last step of an average divides by it
  const void* sources[kMaxSources];
};

// Sources are combined in the order given, so equal inputs give equal bits. Integers wrap around,
// also in the sum of an average, whose division truncates toward zero. Minimum and maximum of
// floats give NaN when any source is NaN. 16-bit floats are rounded (to nearest, ties to even) only
// where they are stored as elements. Any thread.
using ReduceKernel = void (*)(const ReduceArguments& arguments);

// The kernel for the best vector unit of this processor. kAverage adds; the division is the
// `divisor` of the arguments. Any thread.
ReduceKernel FindReduceKernel(ElementType type, Reduction reduction);

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_REDUCE_KERNEL_H_
