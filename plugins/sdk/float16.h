// Conversions between f32 and the 16-bit floats, on bit patterns.
#ifndef COTUNE_PLUGINS_SDK_FLOAT16_H_
#define COTUNE_PLUGINS_SDK_FLOAT16_H_

#include <bit>
#include <cstdint>

namespace cotune::sdk {

// Nearest bf16, ties to even; NaN stays NaN (quiet).
constexpr uint16_t Bf16FromF32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr float F32FromBf16(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

// Nearest IEEE half, ties to even; overflow gives infinity, small values subnormal halves.
constexpr uint16_t F16FromF32(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    return static_cast<uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x33000000u) return static_cast<uint16_t>(sign);  // below half of the smallest
  const uint32_t exponent = magnitude >> 23;
  uint32_t mantissa = magnitude & 0x7fffffu;
  uint32_t shift = 13;
  uint32_t result;
  if (exponent < 113) {  // subnormal half: the implicit one becomes visible
    mantissa |= 0x800000u;
    shift = 126 - exponent;
    result = mantissa >> shift;
  } else {
    result = ((exponent - 112) << 10) | (mantissa >> 13);
  }
  const uint32_t rest = mantissa & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  if (rest > half || (rest == half && (result & 1u) != 0)) ++result;  // may carry to infinity
  return static_cast<uint16_t>(sign | result);
}

constexpr float F32FromF16(uint16_t value) {
  const uint32_t sign = (static_cast<uint32_t>(value) & 0x8000u) << 16;
  const uint32_t exponent = (value >> 10) & 0x1fu;
  uint32_t mantissa = value & 0x3ffu;
  if (exponent == 0x1f) {
    const uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    return std::bit_cast<float>(sign | 0x7f800000u | quiet | (mantissa << 13));
  }
  if (exponent != 0)
    return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  uint32_t shifted_exponent = 113;
  while ((mantissa & 0x400u) == 0) {
    mantissa <<= 1;
    --shifted_exponent;
  }
  return std::bit_cast<float>(sign | (shifted_exponent << 23) | ((mantissa & 0x3ffu) << 13));
}

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_FLOAT16_H_
