#include "core/base/float16.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace cotune {
namespace {

// The value of a binary16 by its definition.
double DefinedF16(uint16_t bits) {
  const int sign = bits >> 15;
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  double magnitude = 0;
  if (exponent == 31) {
    magnitude = fraction == 0 ? std::numeric_limits<double>::infinity()
                              : std::numeric_limits<double>::quiet_NaN();
  } else if (exponent == 0) {
    magnitude = fraction * std::pow(2.0, -24);
  } else {
    magnitude = (1024 + fraction) * std::pow(2.0, exponent - 25);
  }
  return sign ? -magnitude : magnitude;
}

TEST(Float16Test, EveryF16IsReadAndWrittenBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float value = F32FromF16(static_cast<uint16_t>(bits));
    const double defined = DefinedF16(static_cast<uint16_t>(bits));
    if (std::isnan(defined)) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(F32FromF16(F16FromF32(value))));
      continue;
    }
    ASSERT_EQ(value, defined) << bits;
    ASSERT_EQ(F16FromF32(value), bits);
  }
}

TEST(Float16Test, BetweenTwoF16TheNearerOrTheEvenIsTaken) {
  for (uint16_t bits = 0; bits < 0x7BFF; ++bits) {
    const double low = DefinedF16(bits);
    const double high = DefinedF16(static_cast<uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(F16FromF32(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(F16FromF32(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(F16FromF32(std::nextafter(middle, 1e9f)), bits + 1);
  }
  EXPECT_EQ(F16FromF32(65519.996f), 0x7BFF);
  EXPECT_EQ(F16FromF32(65520.0f), 0x7C00);
}

TEST(Float16Test, Bf16RoundsToNearestEven) {
  for (uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const float low = F32FromBf16(static_cast<uint16_t>(bits));
    ASSERT_EQ(Bf16FromF32(low), bits);
    const float middle = std::bit_cast<float>((bits << 16) | 0x8000);
    ASSERT_EQ(Bf16FromF32(middle), bits % 2 == 0 ? bits : bits + 1);
    ASSERT_EQ(Bf16FromF32(std::nextafter(middle, 0.0f)), bits);
  }
  EXPECT_TRUE(std::isnan(F32FromBf16(Bf16FromF32(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isnan(F32FromBf16(Bf16FromF32(std::bit_cast<float>(0x7F800001u)))));
}

}  // namespace
}  // namespace cotune
