#include "core/benchmark/value_hash.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace cotune {
namespace {

template <typename T>
uint64_t Hash(Dtype dtype, const std::vector<T>& values) {
  return HashOfValue(dtype, std::as_bytes(std::span(values)));
}

TEST(ValueHashTest, DependsOnEveryElementAndNotOnHowTheValueIsSplit) {
  std::vector<uint16_t> values(100'003);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<uint16_t>(i % 1009);
  const uint64_t whole = Hash(Dtype::kBf16, values);
  const auto bytes = std::as_bytes(std::span(values));
  for (const size_t step : {size_t{1}, size_t{1009}, size_t{32768}, size_t{50'000}}) {
    ValueHash hash(Dtype::kBf16);
    for (size_t at = 0; at < values.size(); at += step) {
      hash.Add(bytes.subspan(2 * at, 2 * std::min(step, values.size() - at)));
    }
    EXPECT_EQ(hash.Digest(), whole) << step;
  }
  for (const size_t at : {size_t{0}, size_t{40'000}, values.size() - 1}) {
    values[at] ^= 1;
    EXPECT_NE(Hash(Dtype::kBf16, values), whole) << at;
    values[at] ^= 1;
  }
  EXPECT_EQ(Hash(Dtype::kBf16, values), whole);
}

TEST(ValueHashTest, ZerosOfBothSignsAreOneNumberAndSoAreAllNans) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(Hash<float>(Dtype::kF32, {0, nan, 1}), Hash<float>(Dtype::kF32, {-0.0F, -nan, 1}));
  EXPECT_NE(Hash<float>(Dtype::kF32, {0, nan, 1}), Hash<float>(Dtype::kF32, {0, nan, -1}));
  const float infinity = std::numeric_limits<float>::infinity();
  EXPECT_NE(Hash<float>(Dtype::kF32, {infinity}), Hash<float>(Dtype::kF32, {nan}));
  EXPECT_NE(Hash<float>(Dtype::kF32, {infinity}), Hash<float>(Dtype::kF32, {-infinity}));
  EXPECT_EQ(Hash<double>(Dtype::kF64, {0, nan}), Hash<double>(Dtype::kF64, {-0.0, -nan}));
  // Zeros, the largest numbers and all NaNs of the small formats by their bits.
  const auto small = [](Dtype dtype, uint16_t bits) { return Hash<uint16_t>(dtype, {bits}); };
  EXPECT_EQ(small(Dtype::kF16, 0x8000), small(Dtype::kF16, 0));
  EXPECT_EQ(small(Dtype::kF16, 0x7C01), small(Dtype::kF16, 0xFE00));
  EXPECT_NE(small(Dtype::kF16, 0x7C00), small(Dtype::kF16, 0x7E00));
  EXPECT_EQ(small(Dtype::kBf16, 0x7F81), small(Dtype::kBf16, 0xFFC0));
  EXPECT_NE(small(Dtype::kBf16, 0x7F80), small(Dtype::kBf16, 0x7FC0));
  const auto byte = [](Dtype dtype, uint8_t bits) { return Hash<uint8_t>(dtype, {bits}); };
  EXPECT_EQ(byte(Dtype::kF8E4M3, 0x7F), byte(Dtype::kF8E4M3, 0xFF));
  EXPECT_NE(byte(Dtype::kF8E4M3, 0x7F), byte(Dtype::kF8E4M3, 0x7E));
  EXPECT_EQ(byte(Dtype::kF8E5M2, 0x7D), byte(Dtype::kF8E5M2, 0xFF));
  EXPECT_NE(byte(Dtype::kF8E5M2, 0x7D), byte(Dtype::kF8E5M2, 0x7C));
  EXPECT_NE(byte(Dtype::kU8, 0x80), byte(Dtype::kU8, 0));
  EXPECT_NE(Hash<int32_t>(Dtype::kI32, {INT32_MIN}), Hash<int32_t>(Dtype::kI32, {0}));
}

}  // namespace
}  // namespace cotune
