// Floats whose sums depend on the order of additions, and their sums in any order: what choices of
// one numerics class are held to.
#ifndef COTUNE_PLUGINS_SDK_TESTING_ORDERED_SUMS_H_
#define COTUNE_PLUGINS_SDK_TESTING_ORDERED_SUMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plugins/sdk/element_type.h"

namespace cotune::sdk {

// Random floats of one rank of `ranks`. In half of the elements two ranks have large opposite
// values: the other values lose digits where they are added between these two, so that the order of
// additions shows in 16-bit results, too. Some are zeros of either sign, which minima tell apart.
// Fewer elements of the same salt are the first of more elements.
std::vector<std::byte> OrderedAddends(ElementType type, uint64_t elements, int rank, int ranks,
                                      uint64_t salt);

// The elements of ranks order[0], order[1], ... combined one after the other, in f32 (f64 for f64)
// and rounded once. The smaller and the larger of two zeros is the latter.
std::vector<std::byte> CombinedInOrder(ElementType type, Reduction reduction,
                                       const std::vector<std::vector<std::byte>>& inputs,
                                       const std::vector<int>& order);
// The same from rank 0 on.
std::vector<std::byte> CombinedInRankOrder(ElementType type, Reduction reduction,
                                           const std::vector<std::vector<std::byte>>& inputs);

// In how many elements of `width` bytes two results of equal size differ.
uint64_t DifferingElements(const std::vector<std::byte>& a, const std::vector<std::byte>& b,
                           size_t width);

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_TESTING_ORDERED_SUMS_H_
