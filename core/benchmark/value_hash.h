// A hash of a value's bits, by which ranks compare what each of them computed.
#ifndef COTUNE_CORE_BENCHMARK_VALUE_HASH_H_
#define COTUNE_CORE_BENCHMARK_VALUE_HASH_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/problem/problem.h"

namespace cotune {

// XXH3 of the elements. Both zeros count as the same float and all NaNs as one, because minima and
// maxima may return either zero and no backend promises the payload of a NaN. Not thread-safe.
class ValueHash {
 public:
  explicit ValueHash(Dtype dtype) : dtype_(dtype) {}
  // Appends whole elements. The digest does not depend on how the value is split between calls.
  void Add(std::span<const std::byte> elements);
  uint64_t Digest() const;

 private:
  const Dtype dtype_;
  // Hashed elements are in digest_; later ones, less than a piece of them, are pending.
  std::vector<std::byte> pending_;
  uint64_t digest_ = 0;
};

uint64_t HashOfValue(Dtype dtype, std::span<const std::byte> elements);

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_VALUE_HASH_H_
