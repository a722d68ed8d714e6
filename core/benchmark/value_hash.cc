#include "core/benchmark/value_hash.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace cotune {
namespace {

constexpr size_t kPieceBytes = 64 << 10;

// `largest` is the magnitude of the largest number of the format, which is infinity if it has one.
template <typename Word>
void Normalize(std::span<std::byte> elements, Word largest) {
  constexpr Word kMagnitude = std::numeric_limits<Word>::max() >> 1;
  for (size_t at = 0; at < elements.size(); at += sizeof(Word)) {
    Word word = 0;
    std::memcpy(&word, elements.data() + at, sizeof(Word));
    const Word magnitude = word & kMagnitude;
    if (magnitude == 0) word = 0;
    if (magnitude > largest) word = kMagnitude;
    std::memcpy(elements.data() + at, &word, sizeof(Word));
  }
}

void Normalize(Dtype dtype, std::span<std::byte> elements) {
  switch (dtype) {
    case Dtype::kF32:
      return Normalize<uint32_t>(elements, 0x7F800000);
    case Dtype::kF64:
      return Normalize<uint64_t>(elements, 0x7FF0000000000000);
    case Dtype::kF16:
      return Normalize<uint16_t>(elements, 0x7C00);
    case Dtype::kBf16:
      return Normalize<uint16_t>(elements, 0x7F80);
    case Dtype::kF8E4M3:
      return Normalize<uint8_t>(elements, 0x7E);
    case Dtype::kF8E5M2:
      return Normalize<uint8_t>(elements, 0x7C);
    default:  // integers
      return;
  }
}

}  // namespace

void ValueHash::Add(std::span<const std::byte> elements) {
  while (!elements.empty()) {
    const size_t taken = std::min(kPieceBytes - pending_.size(), elements.size());
    const size_t begin = pending_.size();
    pending_.insert(pending_.end(), elements.begin(),
                    elements.begin() + static_cast<ptrdiff_t>(taken));
    Normalize(dtype_, std::span(pending_).subspan(begin));
    elements = elements.subspan(taken);
    if (pending_.size() < kPieceBytes) return;
    digest_ = XXH3_64bits_withSeed(pending_.data(), pending_.size(), digest_);
    pending_.clear();
  }
}

uint64_t ValueHash::Digest() const {
  return XXH3_64bits_withSeed(pending_.data(), pending_.size(), digest_);
}

uint64_t HashOfValue(Dtype dtype, std::span<const std::byte> elements) {
  ValueHash hash(dtype);
  hash.Add(elements);
  return hash.Digest();
}

}  // namespace cotune
