#include "plugins/fake/reduction.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/float16.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plugins/api/cotune_backend_v1.h"

namespace cotune::fake {
namespace {

using ::testing::ElementsAre;

constexpr cotune_dtype_t kF16 = {COTUNE_DTYPE_FLOAT, 16, 1};
constexpr cotune_dtype_t kBf16 = {COTUNE_DTYPE_BFLOAT, 16, 1};

template <typename T>
std::vector<T> ReduceOf(cotune_dtype_t dtype, uint32_t reduction,
                        const std::vector<std::vector<T>>& inputs) {
  std::vector<std::vector<std::byte>> blocks;
  for (const std::vector<T>& input : inputs) {
    const auto* bytes = reinterpret_cast<const std::byte*>(input.data());
    blocks.emplace_back(bytes, bytes + input.size() * sizeof(T));
  }
  std::vector<T> result(inputs[0].size());
  Reduce(dtype, reduction, result.size(), blocks, reinterpret_cast<std::byte*>(result.data()));
  return result;
}

std::vector<uint16_t> AllBits() {
  std::vector<uint16_t> bits(65536);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  return bits;
}

// Every 16-bit number plus one that makes rounding necessary, against the conversions of core.
TEST(ReductionTest, SixteenBitFloatsAreSummedAndRoundedOnce) {
  const std::vector<uint16_t> all = AllBits();
  for (float addend : {0.0F, 1.0F, -3.14159F, 1e-7F, 3e-5F, 700.0F}) {
    const std::vector<uint16_t> f16(65536, F16FromF32(addend));
    const std::vector<uint16_t> f16_sum = ReduceOf<uint16_t>(kF16, COTUNE_SUM, {all, f16});
    const std::vector<uint16_t> bf16(65536, Bf16FromF32(addend));
    const std::vector<uint16_t> bf16_sum = ReduceOf<uint16_t>(kBf16, COTUNE_SUM, {all, bf16});
    for (size_t i = 0; i < all.size(); ++i) {
      const float f16_exact = F32FromF16(all[i]) + F32FromF16(f16[0]);
      if (std::isnan(f16_exact)) {
        EXPECT_TRUE(std::isnan(F32FromF16(f16_sum[i]))) << i;
      } else {
        ASSERT_EQ(f16_sum[i], F16FromF32(f16_exact)) << i << " + " << addend;
      }
      const float bf16_exact = F32FromBf16(all[i]) + F32FromBf16(bf16[0]);
      if (std::isnan(bf16_exact)) {
        EXPECT_TRUE(std::isnan(F32FromBf16(bf16_sum[i]))) << i;
      } else {
        ASSERT_EQ(bf16_sum[i], Bf16FromF32(bf16_exact)) << i << " + " << addend;
      }
    }
  }
}

TEST(ReductionTest, IntegersWrapAndAveragesTruncateTowardZero) {
  const cotune_dtype_t i32 = {COTUNE_DTYPE_INT, 32, 1};
  constexpr int32_t kMax = std::numeric_limits<int32_t>::max();
  constexpr int32_t kMin = std::numeric_limits<int32_t>::min();
  EXPECT_THAT(ReduceOf<int32_t>(i32, COTUNE_SUM, {{kMax, -1}, {1, 4}}), ElementsAre(kMin, 3));
  EXPECT_THAT(ReduceOf<int32_t>(i32, COTUNE_PRODUCT, {{kMax, -2}, {2, 4}}), ElementsAre(-2, -8));
  EXPECT_THAT(ReduceOf<int32_t>(i32, COTUNE_MIN, {{kMax, -2}, {2, 4}}), ElementsAre(2, -2));
  EXPECT_THAT(ReduceOf<int32_t>(i32, COTUNE_MAX, {{kMin, -2}, {2, 4}}), ElementsAre(2, 4));
  EXPECT_THAT(ReduceOf<int32_t>(i32, COTUNE_AVERAGE, {{-3, 3}, {0, 0}}), ElementsAre(-1, 1));
  const cotune_dtype_t u8 = {COTUNE_DTYPE_UINT, 8, 1};
  EXPECT_THAT(ReduceOf<uint8_t>(u8, COTUNE_SUM, {{200, 7}, {100, 1}}), ElementsAre(44, 8));
  EXPECT_THAT(ReduceOf<uint8_t>(u8, COTUNE_MAX, {{200, 7}, {100, 9}}), ElementsAre(200, 9));
  const cotune_dtype_t i64 = {COTUNE_DTYPE_INT, 64, 1};
  EXPECT_THAT(ReduceOf<int64_t>(i64, COTUNE_PRODUCT, {{int64_t{1} << 40}, {-8}}),
              ElementsAre(-(int64_t{1} << 43)));
}

TEST(ReductionTest, FloatsAreRoundedOnce) {
  const cotune_dtype_t f32 = {COTUNE_DTYPE_FLOAT, 32, 1};
  // Rounded after each addition, the small numbers would be lost.
  EXPECT_THAT(ReduceOf<float>(f32, COTUNE_SUM, {{1e8F}, {1.0F}, {1.0F}, {-1e8F}}),
              ElementsAre(2.0F));
  const cotune_dtype_t f64 = {COTUNE_DTYPE_FLOAT, 64, 1};
  EXPECT_THAT(ReduceOf<double>(f64, COTUNE_AVERAGE, {{1, 5}, {2, 6}}), ElementsAre(1.5, 5.5));
}

TEST(ReductionTest, NothingIsReducedToNothing) {
  EXPECT_THAT(ReduceOf<uint16_t>(kF16, COTUNE_SUM, {{}, {}}), ElementsAre());
}

TEST(ReductionTest, TypesThatAreNotThereHaveNoSize) {
  EXPECT_EQ(ElementBytes(kBf16), 2u);
  EXPECT_EQ(ElementBytes({COTUNE_DTYPE_FLOAT, 64, 1}), 8u);
  EXPECT_EQ(ElementBytes({COTUNE_DTYPE_FLOAT, 8, 1}), 0u);
  EXPECT_EQ(ElementBytes({COTUNE_DTYPE_UINT, 32, 1}), 0u);
  EXPECT_EQ(ElementBytes({COTUNE_DTYPE_FLOAT, 32, 4}), 0u);
}

}  // namespace
}  // namespace cotune::fake
