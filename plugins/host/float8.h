// Conversions between f32 and the 8-bit floats.
#ifndef COTUNE_PLUGINS_HOST_FLOAT8_H_
#define COTUNE_PLUGINS_HOST_FLOAT8_H_

#include <bit>
#include <cstdint>

namespace cotune::host {

// A sign, kExponentBits and kMantissaBits. e4m3fn has no infinity: its largest pattern is NaN, and
// the rest of the largest exponent are numbers. e5m2 is laid out as IEEE says.
template <int kExponentBits, int kMantissaBits, bool kHasInfinity>
struct Float8 {
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr uint32_t kNan = kHasInfinity ? 0x7e : 0x7f;
  static constexpr uint32_t kBeyond = kHasInfinity ? 0x7c : 0x7f;  // of values out of range

  // To nearest, ties to even; out of range is infinity, or NaN where there is none.
  static constexpr uint8_t FromF32(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    const uint32_t sign = (bits >> 24) & 0x80u;
    const uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) return static_cast<uint8_t>(sign | kNan);
    if (magnitude == 0x7f800000u) return static_cast<uint8_t>(sign | kBeyond);
    const auto exponent = static_cast<int>(magnitude >> 23) - 127 + kBias;
    uint32_t mantissa = magnitude & 0x7fffffu;
    int shift = 23 - kMantissaBits;
    uint32_t result = 0;
    if (exponent < 1) {  // subnormal: the implicit one becomes visible
      if (exponent < -kMantissaBits) return static_cast<uint8_t>(sign);
      mantissa |= 0x800000u;
      shift += 1 - exponent;
      result = mantissa >> shift;
    } else {
      result = (static_cast<uint32_t>(exponent) << kMantissaBits) | (mantissa >> shift);
    }
    const uint32_t rest = mantissa & ((1u << shift) - 1);
    const uint32_t half = 1u << (shift - 1);
    if (rest > half || (rest == half && (result & 1u) != 0)) ++result;
    return static_cast<uint8_t>(sign | (result < kBeyond ? result : kBeyond));
  }

  static constexpr float ToF32(uint8_t value) {
    const uint32_t sign = (value & 0x80u) << 24;
    const uint32_t magnitude = value & 0x7fu;
    if (magnitude > kBeyond || (!kHasInfinity && magnitude == kBeyond)) {
      return std::bit_cast<float>(sign | 0x7fc00000u);
    }
    if (kHasInfinity && magnitude == kBeyond) return std::bit_cast<float>(sign | 0x7f800000u);
    const auto exponent = static_cast<int>(magnitude >> kMantissaBits);
    const uint32_t mantissa = magnitude & ((1u << kMantissaBits) - 1);
    if (exponent != 0) {
      return std::bit_cast<float>(sign | (static_cast<uint32_t>(exponent - kBias + 127) << 23) |
                                  (mantissa << (23 - kMantissaBits)));
    }
    constexpr auto kSmallest =
        std::bit_cast<float>(static_cast<uint32_t>(1 - kBias - kMantissaBits + 127) << 23);
    const float positive = static_cast<float>(mantissa) * kSmallest;
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(positive));
  }
};

using F8E4M3 = Float8<4, 3, false>;
using F8E5M2 = Float8<5, 2, true>;

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_FLOAT8_H_
