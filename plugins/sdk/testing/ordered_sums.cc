#include "plugins/sdk/testing/ordered_sums.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>

#include "plugins/sdk/float16.h"

namespace cotune::sdk {
namespace {

using Bytes = std::vector<std::byte>;

double Fraction(std::mt19937_64& random) {
  return 1 + std::ldexp(static_cast<double>(random() >> 11), -53);
}

// A float of either sign whose magnitude lies between 2^-6 and 2^6. One in 16 is a zero.
double SmallValue(std::mt19937_64& random) {
  const double sign = random() % 2 == 0 ? 1 : -1;
  const double fraction = Fraction(random);
  if (random() % 16 == 0) return sign * 0.0;
  return sign * std::ldexp(fraction, static_cast<int>(random() % 12) - 6);
}

// A magnitude beside which the accumulator loses digits of small values.
double LargeValue(ElementType type, std::mt19937_64& random) {
  const int exponent = type == ElementType::kF16 ? 15 : type == ElementType::kF64 ? 40 : 30;
  return std::ldexp(1 + static_cast<double>(random() % 8) / 8, exponent);
}

void Append(ElementType type, double value, Bytes& bytes) {
  const auto append = [&](const auto& element) {
    const auto* const from = reinterpret_cast<const std::byte*>(&element);
    bytes.insert(bytes.end(), from, from + sizeof(element));
  };
  if (type == ElementType::kF64) append(value);
  if (type == ElementType::kF32) append(static_cast<float>(value));
  if (type == ElementType::kBf16) append(Bf16FromF32(static_cast<float>(value)));
  if (type == ElementType::kF16) append(F16FromF32(static_cast<float>(value)));
}

// An element as its accumulator holds it.
template <typename T>
T Load(ElementType type, const std::byte* from) {
  if (IsNarrowFloat(type)) {
    uint16_t bits = 0;
    std::memcpy(&bits, from, sizeof(bits));
    return type == ElementType::kBf16 ? F32FromBf16(bits) : F32FromF16(bits);
  }
  T value = 0;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

template <typename T>
T Combine(Reduction reduction, T total, T next) {
  switch (reduction) {
    case Reduction::kProduct:
      return total * next;
    case Reduction::kMin:
      return total < next ? total : next;
    case Reduction::kMax:
      return total > next ? total : next;
    case Reduction::kSum:
    case Reduction::kAverage:
      break;
  }
  return total + next;
}

template <typename T>
Bytes Combined(ElementType type, Reduction reduction, const std::vector<Bytes>& inputs,
               const std::vector<int>& order) {
  Bytes result;
  for (size_t at = 0; at < inputs[0].size(); at += ElementBytes(type)) {
    const auto element = [&](int rank) {
      return Load<T>(type, inputs[static_cast<size_t>(rank)].data() + at);
    };
    T total = element(order[0]);
    for (size_t i = 1; i < order.size(); ++i) {
      total = Combine(reduction, total, element(order[i]));
    }
    if (reduction == Reduction::kAverage) total /= static_cast<T>(order.size());
    Append(type, total, result);
  }
  return result;
}

}  // namespace

Bytes OrderedAddends(ElementType type, uint64_t elements, int rank, int ranks, uint64_t salt) {
  std::mt19937_64 shared(salt);  // draws the same on all ranks
  std::mt19937_64 own(salt * 64 + static_cast<uint64_t>(rank) + 1);
  const auto ranks_drawn = static_cast<uint64_t>(ranks);
  Bytes bytes;
  for (uint64_t i = 0; i < elements; ++i) {
    const bool has_large = shared() % 2 == 0;
    const auto plus = static_cast<int>(shared() % ranks_drawn);
    const auto minus = static_cast<int>(shared() % ranks_drawn);
    const double large = LargeValue(type, shared);
    const double small = SmallValue(own);
    const bool is_one = has_large && plus != minus && (rank == plus || rank == minus);
    Append(type, !is_one ? small : rank == plus ? large : -large, bytes);
  }
  return bytes;
}

Bytes CombinedInOrder(ElementType type, Reduction reduction, const std::vector<Bytes>& inputs,
                      const std::vector<int>& order) {
  return type == ElementType::kF64 ? Combined<double>(type, reduction, inputs, order)
                                   : Combined<float>(type, reduction, inputs, order);
}

Bytes CombinedInRankOrder(ElementType type, Reduction reduction, const std::vector<Bytes>& inputs) {
  std::vector<int> order(inputs.size());
  std::iota(order.begin(), order.end(), 0);
  return CombinedInOrder(type, reduction, inputs, order);
}

uint64_t DifferingElements(const Bytes& a, const Bytes& b, size_t width) {
  if (a.size() != b.size()) std::abort();
  uint64_t differing = 0;
  for (size_t at = 0; at < a.size(); at += width) {
    if (std::memcmp(a.data() + at, b.data() + at, width) != 0) ++differing;
  }
  return differing;
}

}  // namespace cotune::sdk
