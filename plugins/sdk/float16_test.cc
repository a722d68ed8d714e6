// Rounding of f32 to the 16-bit floats, and that the way back is exact.
#include "plugins/sdk/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace cotune::sdk {
namespace {

#if defined(__FLT16_MAX__)  // the compiler's own conversions are the oracle
TEST(Float16Test, EqualsTheCompiler) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = std::bit_cast<_Float16>(static_cast<uint16_t>(bits));
    const float value = F32FromF16(static_cast<uint16_t>(bits));
    if (std::isnan(static_cast<float>(half))) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(static_cast<float>(half)));
    // Just below, at and just above the middle between two halves.
    const float next = F32FromF16(static_cast<uint16_t>(bits + 1));
    if (!std::isfinite(value) || !std::isfinite(next)) continue;
    const float middle = value / 2 + next / 2;
    for (const float probe :
         {std::nextafter(middle, value), middle, std::nextafter(middle, next)}) {
      ASSERT_EQ(F16FromF32(probe), std::bit_cast<uint16_t>(static_cast<_Float16>(probe))) << probe;
    }
  }
  for (const float probe : {65504.0f, 65519.0f, 65520.0f, 70000.0f, -1e30f, 2e-8f, 3e-8f, 6e-8f}) {
    EXPECT_EQ(F16FromF32(probe), std::bit_cast<uint16_t>(static_cast<_Float16>(probe))) << probe;
  }
}
#endif

TEST(Float16Test, Bf16RoundsToNearestEven) {
  EXPECT_EQ(Bf16FromF32(1.0f), 0x3f80);
  EXPECT_EQ(Bf16FromF32(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // tie, even stays
  EXPECT_EQ(Bf16FromF32(std::bit_cast<float>(0x3f818000u)), 0x3f82);  // tie, odd goes up
  EXPECT_EQ(Bf16FromF32(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(Bf16FromF32(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(F32FromBf16(Bf16FromF32(std::bit_cast<float>(0x7f800001u)))));
}

// By arithmetic, whatever the compiler has.
TEST(Float16Test, EveryHalfIsTheNumberThatItsFieldsSay) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const int exponent = static_cast<int>(bits >> 10) & 0x1f;
    const auto fraction = static_cast<float>(bits & 0x3ff);
    if (exponent == 0x1f) continue;
    const float size =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0f + fraction, exponent - 25);
    const float value = (bits & 0x8000u) != 0 ? -size : size;
    ASSERT_EQ(F32FromF16(static_cast<uint16_t>(bits)), value) << bits;
    ASSERT_EQ(F16FromF32(value), bits);
  }
  EXPECT_TRUE(std::isinf(F32FromF16(0x7c00)));
  EXPECT_TRUE(std::isnan(F32FromF16(0x7c01)));
  EXPECT_TRUE(std::isnan(F32FromF16(F16FromF32(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace cotune::sdk
