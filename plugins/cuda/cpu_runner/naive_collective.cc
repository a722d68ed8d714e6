#include "plugins/cuda/cpu_runner/naive_collective.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "plugins/cuda/kernels/kernel_abi.h"

namespace cotune::cuda::cpu {
namespace {

// The value of a 16-bit float, from the definition of the format.
float DecodeHalf(uint16_t bits, int fraction_bits) {
  const int exponent_bits = 15 - fraction_bits;
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = bits >> fraction_bits & ((1 << exponent_bits) - 1);
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const float sign = bits >> 15 != 0 ? -1.0f : 1.0f;
  if (exponent == (1 << exponent_bits) - 1) {
    return fraction != 0 ? std::numeric_limits<float>::quiet_NaN()
                         : sign * std::numeric_limits<float>::infinity();
  }
  const float whole = exponent == 0 ? 0.0f : 1.0f;
  const float significand = whole + std::ldexp(static_cast<float>(fraction), -fraction_bits);
  return sign * std::ldexp(significand, std::max(exponent, 1) - bias);
}

// The nearest of all values of the format; of two that are equally near the one with an even last
// bit.
uint16_t EncodeHalf(float value, int fraction_bits) {
  if (std::isnan(value)) return 0x7fff;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  const auto infinity = static_cast<uint16_t>(((1 << (15 - fraction_bits)) - 1) << fraction_bits);
  uint16_t low = 0;  // the largest with a value <= magnitude
  for (uint16_t bit = 0x4000; bit != 0; bit >>= 1) {
    const auto next = static_cast<uint16_t>(low | bit);
    if (next < infinity && static_cast<double>(DecodeHalf(next, fraction_bits)) <= magnitude) {
      low = next;
    }
  }
  const auto high = static_cast<uint16_t>(low + 1);
  const double low_value = DecodeHalf(low, fraction_bits);
  // Above the largest finite value, infinity stands where the next one would.
  const double step =
      low_value - DecodeHalf(static_cast<uint16_t>(low == 0 ? 0 : low - 1), fraction_bits);
  const double high_value = high == infinity ? low_value + step : DecodeHalf(high, fraction_bits);
  const double to_low = magnitude - low_value;
  const double to_high = high_value - magnitude;
  const bool takes_high = to_high < to_low || (to_high == to_low && (low & 1) != 0);
  return static_cast<uint16_t>(sign | (takes_high ? high : low));
}

template <typename T>
T Read(const Bytes& bytes, uint64_t element) {
  T value;
  std::memcpy(&value, bytes.data() + element * sizeof(T), sizeof(T));
  return value;
}
template <typename T>
void Write(T value, Bytes& bytes, uint64_t element) {
  std::memcpy(bytes.data() + element * sizeof(T), &value, sizeof(T));
}

// How elements of a type are read, added up and written.
template <typename T>
struct PlainType {
  using Sum = T;
  static Sum Get(const Bytes& bytes, uint64_t i) { return Read<T>(bytes, i); }
  static void Put(Sum value, Bytes& bytes, uint64_t i) { Write<T>(value, bytes, i); }
};
template <int kFractionBits>
struct HalfType {
  using Sum = float;
  static Sum Get(const Bytes& bytes, uint64_t i) {
    return DecodeHalf(Read<uint16_t>(bytes, i), kFractionBits);
  }
  static void Put(Sum value, Bytes& bytes, uint64_t i) {
    Write<uint16_t>(EncodeHalf(value, kFractionBits), bytes, i);
  }
};

template <class Body>
auto WithType(std::string_view type, Body body) {
  if (type == "F32") return body(PlainType<float>());
  if (type == "F64") return body(PlainType<double>());
  if (type == "F16") return body(HalfType<10>());
  if (type == "BF16") return body(HalfType<7>());
  if (type == "I32") return body(PlainType<int32_t>());
  if (type == "I64") return body(PlainType<int64_t>());
  return body(PlainType<uint8_t>());
}

template <typename T>
T Combine(T a, T b, std::string_view reduction) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return a;
    if (std::isnan(b)) return b;
    if (reduction == "PRODUCT") return a * b;
    if (reduction == "MIN") return std::min(a, b);
    if (reduction == "MAX") return std::max(a, b);
    return a + b;
  } else {
    using Wrapping = std::make_unsigned_t<T>;
    if (reduction == "MIN") return std::min(a, b);
    if (reduction == "MAX") return std::max(a, b);
    const uint64_t x = static_cast<Wrapping>(a);
    const uint64_t y = static_cast<Wrapping>(b);
    return static_cast<T>(reduction == "PRODUCT" ? x * y : x + y);
  }
}

}  // namespace

size_t ElementBytes(std::string_view type) {
  if (type == "F64" || type == "I64") return 8;
  if (type == "F32" || type == "I32") return 4;
  return type == "U8" ? 1 : 2;
}

uint64_t SendElements(const Problem& p) {
  const bool has_blocks = p.collective == "REDUCE_SCATTER" || p.collective == "ALL_TO_ALL";
  return p.count * (has_blocks ? static_cast<uint64_t>(p.world_size) : 1);
}

uint64_t ReceiveElements(const Problem& p) {
  const bool has_blocks = p.collective == "ALL_GATHER" || p.collective == "ALL_TO_ALL";
  return p.count * (has_blocks ? static_cast<uint64_t>(p.world_size) : 1);
}

Bytes ExactInput(const Problem& p, int rank, unsigned int salt) {
  Bytes input(SendElements(p) * ElementBytes(p.type));
  WithType(p.type, [&]<class Type>(Type) {
    using Sum = typename Type::Sum;
    for (uint64_t i = 0; i < SendElements(p); ++i) {
      const uint64_t mixed = (i * 11 + i / 37 + static_cast<uint64_t>(rank) * 17 + salt * 5) % 31;
      int value = static_cast<int>(mixed) - (std::is_signed_v<Sum> ? 15 : 0);
      if (p.reduction == "PRODUCT") value = mixed % 4 == 0 ? 2 : 1;
      Type::Put(static_cast<Sum>(value), input, i);
    }
  });
  return input;
}

Bytes ExpectedOutput(const Problem& p, int rank, const std::vector<Bytes>& inputs) {
  const size_t width = ElementBytes(p.type);
  Bytes output(ReceiveElements(p) * width);
  const auto own = static_cast<uint64_t>(rank);
  for (uint64_t i = 0; i < ReceiveElements(p); ++i) {
    if (!p.reduction.empty()) {
      const uint64_t at = p.collective == "REDUCE_SCATTER" ? own * p.count + i : i;
      WithType(p.type, [&]<class Type>(Type) {
        auto sum = Type::Get(inputs[0], at);
        for (size_t r = 1; r < inputs.size(); ++r) {
          sum = Combine(sum, Type::Get(inputs[r], at), p.reduction);
        }
        if (p.reduction == "AVERAGE") sum = static_cast<decltype(sum)>(sum / p.world_size);
        Type::Put(sum, output, i);
      });
      continue;
    }
    const uint64_t block = i / p.count;
    const uint64_t within = i % p.count;
    const bool is_gather = p.collective == "ALL_GATHER";
    const bool is_exchange = p.collective == "ALL_TO_ALL";
    const size_t from = is_gather || is_exchange ? block : static_cast<size_t>(p.root);
    const uint64_t at = is_gather ? within : is_exchange ? own * p.count + within : i;
    std::memcpy(output.data() + i * width, inputs[from].data() + at * width, width);
  }
  return output;
}

double FloatAt(std::string_view type, const Bytes& bytes, uint64_t element) {
  if (type == "F32") return Read<float>(bytes, element);
  if (type == "F64") return Read<double>(bytes, element);
  return DecodeHalf(Read<uint16_t>(bytes, element), type == "F16" ? 10 : 7);
}

std::vector<Bytes> EscapedInputs(const Problem& p) {
  constexpr uint64_t kEmpty = ~kEscapeMask;
  constexpr uint64_t kHalves[] = {kEmpty, 0, kEmpty ^ 1, kEmpty ^ 2, ~0ull, kEmpty & 0xFFFFFFFF};
  std::vector<Bytes> inputs;
  for (int r = 0; r < p.world_size; ++r) {
    Bytes input(SendElements(p) * ElementBytes(p.type));
    for (size_t at = 0; at < input.size(); at += sizeof(uint64_t)) {
      const size_t half = at / sizeof(uint64_t);
      // Both halves of a pack go through all of them, and other ranks are elsewhere.
      const size_t pack = half / 2 + 7 * static_cast<size_t>(r);
      const uint64_t bits = kHalves[(half % 2 == 0 ? pack / 6 : pack) % 6];
      std::memcpy(input.data() + at, &bits, std::min(sizeof(bits), input.size() - at));
    }
    inputs.push_back(input);
  }
  return inputs;
}

}  // namespace cotune::cuda::cpu
