// Conversions of the 8-bit floating-point types, by bits.
//   e4m3: sign, 4 bits of exponent (bias 7), 3 of fraction. No infinity; 0x7F and 0xFF are NaN; the
//         largest number is 448.
//   e5m2: sign, 5 bits of exponent (bias 15), 2 of fraction. With infinities, as IEEE; the largest
//         number is 57344.
#ifndef COTUNE_CORE_BASE_FLOAT8_H_
#define COTUNE_CORE_BASE_FLOAT8_H_

#include <cmath>
#include <cstdint>
#include <limits>

namespace cotune {

inline constexpr float kF8E4M3Largest = 448;
inline constexpr float kF8E5M2Largest = 57344;

inline float F32FromF8E4M3(uint8_t bits) {
  const int exponent = (bits >> 3) & 15;
  const int fraction = bits & 7;
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -9)
                                  : std::ldexp(static_cast<float>(8 + fraction), exponent - 10);
  if ((bits & 0x7F) == 0x7F) magnitude = std::numeric_limits<float>::quiet_NaN();
  return bits & 0x80 ? -magnitude : magnitude;
}

inline float F32FromF8E5M2(uint8_t bits) {
  const int exponent = (bits >> 2) & 31;
  const int fraction = bits & 3;
  float magnitude = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -16)
                                  : std::ldexp(static_cast<float>(4 + fraction), exponent - 17);
  if (exponent == 31) {
    magnitude = fraction == 0 ? std::numeric_limits<float>::infinity()
                              : std::numeric_limits<float>::quiet_NaN();
  }
  return bits & 0x80 ? -magnitude : magnitude;
}

// The bits of a finite magnitude below the end of the range, rounded to nearest even: a whole
// number of steps, and as exponents follow each other in the bits, so do the numbers.
inline uint8_t F8MagnitudeBits(float magnitude, int fraction_bits, int smallest_exponent) {
  if (magnitude == 0) return 0;
  int exponent = 0;
  std::frexp(magnitude, &exponent);  // magnitude in [2^(exponent - 1), 2^exponent)
  const int scale = exponent - 1 > smallest_exponent ? exponent - 1 : smallest_exponent;
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(magnitude, fraction_bits - scale)));
  return static_cast<uint8_t>(((scale - smallest_exponent) << fraction_bits) + steps);
}

// To nearest even; what rounds to more than 448 becomes NaN, and so does infinity.
inline uint8_t F8E4M3FromF32(float value) {
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
  const float magnitude = std::fabs(value);
  // 464 lies in the middle between 448 and what would be 480; the even one is 448.
  if (!(magnitude <= 464)) return static_cast<uint8_t>(sign | 0x7F);
  return static_cast<uint8_t>(sign | F8MagnitudeBits(magnitude, 3, -6));
}

// To nearest even; what rounds to more than 57344 becomes infinity, NaN stays NaN.
inline uint8_t F8E5M2FromF32(float value) {
  const auto sign = static_cast<uint8_t>(std::signbit(value) ? 0x80 : 0);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return static_cast<uint8_t>(sign | 0x7E);
  // 61440 lies in the middle between 57344 and what would be 65536, which is the even one.
  if (magnitude >= 61440) return static_cast<uint8_t>(sign | 0x7C);
  return static_cast<uint8_t>(sign | F8MagnitudeBits(magnitude, 2, -14));
}

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_FLOAT8_H_
