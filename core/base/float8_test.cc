#include "core/base/float8.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace cotune {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Format {
  int fraction_bits;
  int bias;
  uint8_t largest;  // bits of the largest number
  float (*read)(uint8_t);
  uint8_t (*write)(float);
};
constexpr Format kE4M3{3, 7, 0x7E, F32FromF8E4M3, F8E4M3FromF32};
constexpr Format kE5M2{2, 15, 0x7B, F32FromF8E5M2, F8E5M2FromF32};

// The number of these bits by the definition of the format.
double Defined(const Format& format, uint32_t magnitude_bits) {
  const uint32_t fraction = magnitude_bits & ((1u << format.fraction_bits) - 1);
  const int exponent = static_cast<int>(magnitude_bits >> format.fraction_bits);
  const double whole = std::pow(2.0, format.fraction_bits);
  return exponent == 0 ? fraction / whole * std::pow(2.0, 1 - format.bias)
                       : (1 + fraction / whole) * std::pow(2.0, exponent - format.bias);
}

// Looks through all numbers of the format, and the one behind the largest, for the nearest; the
// even one of two. Returns its bits, so that largest + 1 means beyond the range.
uint32_t Nearest(const Format& format, double magnitude) {
  uint32_t best = 0;
  for (uint32_t bits = 1; bits <= format.largest + 1u; ++bits) {
    const double distance = std::fabs(Defined(format, bits) - magnitude);
    const double least = std::fabs(Defined(format, best) - magnitude);
    if (distance < least || (distance == least && bits % 2 == 0)) best = bits;
  }
  return best;
}

void ExpectAllBitsReadAndWrittenBack(const Format& format) {
  for (uint32_t bits = 0; bits <= format.largest; ++bits) {
    const auto positive = static_cast<uint8_t>(bits);
    const auto negative = static_cast<uint8_t>(bits | 0x80);
    EXPECT_EQ(format.read(positive), Defined(format, bits)) << bits;
    EXPECT_EQ(format.read(negative), -Defined(format, bits)) << bits;
    EXPECT_TRUE(std::signbit(format.read(negative)));
    EXPECT_EQ(format.write(format.read(positive)), positive);
    EXPECT_EQ(format.write(format.read(negative)), negative);
  }
}

// Every number with 6 bits of fraction beyond the format's, and those just beside it.
void ExpectTheNearestIsWritten(const Format& format, uint8_t beyond) {
  const uint32_t step = 1u << (23 - format.fraction_bits - 6);
  const auto first = std::bit_cast<uint32_t>(std::ldexp(1.0f, -format.bias - 8));
  const auto end = std::bit_cast<uint32_t>(std::ldexp(1.0f, 18));
  for (uint32_t bits = first; bits < end; bits += step) {
    for (const uint32_t beside : {bits - 1, bits, bits + 1}) {
      const auto value = std::bit_cast<float>(beside);
      uint32_t expected = Nearest(format, value);
      if (expected > format.largest) expected = beyond;
      ASSERT_EQ(format.write(value), expected) << value;
      ASSERT_EQ(format.write(-value), expected | 0x80) << value;
    }
  }
  EXPECT_EQ(format.write(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(format.write(std::numeric_limits<float>::max()), beyond);
  EXPECT_EQ(format.write(kInfinity), beyond);
  EXPECT_EQ(format.write(-kInfinity), beyond | 0x80);
}

TEST(Float8Test, EveryE4M3IsReadAndWrittenBack) {
  ExpectAllBitsReadAndWrittenBack(kE4M3);
  EXPECT_EQ(F32FromF8E4M3(0x7E), kF8E4M3Largest);
  EXPECT_TRUE(std::isnan(F32FromF8E4M3(0x7F)));
  EXPECT_TRUE(std::isnan(F32FromF8E4M3(0xFF)));
}

TEST(Float8Test, EveryE5M2IsReadAndWrittenBack) {
  ExpectAllBitsReadAndWrittenBack(kE5M2);
  EXPECT_EQ(F32FromF8E5M2(0x7B), kF8E5M2Largest);
  EXPECT_EQ(F32FromF8E5M2(0x7C), kInfinity);
  EXPECT_EQ(F32FromF8E5M2(0xFC), -kInfinity);
  for (const uint8_t nan : std::vector<uint8_t>{0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF}) {
    EXPECT_TRUE(std::isnan(F32FromF8E5M2(nan)));
  }
}

TEST(Float8Test, TheNearestE4M3IsWritten) { ExpectTheNearestIsWritten(kE4M3, 0x7F); }

TEST(Float8Test, TheNearestE5M2IsWritten) { ExpectTheNearestIsWritten(kE5M2, 0x7C); }

TEST(Float8Test, NanStaysNan) {
  for (const float nan : {kNan, -kNan, std::bit_cast<float>(0x7F800001u)}) {
    EXPECT_TRUE(std::isnan(F32FromF8E4M3(F8E4M3FromF32(nan))));
    EXPECT_TRUE(std::isnan(F32FromF8E5M2(F8E5M2FromF32(nan))));
  }
}

TEST(Float8Test, AtTheEndOfTheRangeTheEvenNeighbourIsTaken) {
  EXPECT_EQ(F8E4M3FromF32(464), 0x7E);
  EXPECT_EQ(F8E4M3FromF32(std::nextafter(464.0f, 1e9f)), 0x7F);
  EXPECT_EQ(F8E5M2FromF32(std::nextafter(61440.0f, 0.0f)), 0x7B);
  EXPECT_EQ(F8E5M2FromF32(61440), 0x7C);
}

}  // namespace
}  // namespace cotune
