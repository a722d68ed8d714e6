#include "cli/output/number_text.h"

#include "core/base/memory_text.h"
#include "gtest/gtest.h"

namespace cotune::cli {
namespace {

TEST(NumberTextTest, MicrosecondsKeepThreeDigits) {
  EXPECT_EQ(MicrosecondsText(0), "0.00");
  EXPECT_EQ(MicrosecondsText(5'213), "5.21");
  EXPECT_EQ(MicrosecondsText(9'994), "9.99");
  EXPECT_EQ(MicrosecondsText(9'996), "10.0");
  EXPECT_EQ(MicrosecondsText(41'240), "41.2");
  EXPECT_EQ(MicrosecondsText(999'940), "999.9");
  EXPECT_EQ(MicrosecondsText(999'960), "1000");
  EXPECT_EQ(MicrosecondsText(1'234'567), "1235");
  EXPECT_EQ(IntervalText(5'100, 5'400), "5.10-5.40");
}

TEST(NumberTextTest, BandwidthsFollowTheFormulas) {
  Problem problem{.cls = {.collective = Collective::kAllReduce, .world_size = 4}, .count = 250'000};
  // 10^6 bytes in 100 us are 10 GB/s; times 2 * 3 / 4.
  EXPECT_DOUBLE_EQ(AlgorithmBandwidth(problem, 100'000), 10.0);
  EXPECT_DOUBLE_EQ(BusBandwidth(problem, 100'000), 15.0);
  EXPECT_EQ(AlgorithmBandwidth(problem, 0), 0);
  EXPECT_EQ(BandwidthText(15.0), "15.00");
  EXPECT_EQ(BandwidthText(0), "-");
}

TEST(NumberTextTest, SpansAndMemory) {
  EXPECT_EQ(SpanText(0), "0:00");
  EXPECT_EQ(SpanText(12'400'000'000), "0:12");
  EXPECT_EQ(SpanText(3'723'000'000'000), "1:02:03");
  EXPECT_EQ(SpanText(-5), "0:00");
  EXPECT_EQ(AboutText(400'000'000), "less than a second");
  EXPECT_EQ(AboutText(42'000'000'000), "about 42 s");
  EXPECT_EQ(AboutText(220'000'000'000), "about 3 min 40 s");
  EXPECT_EQ(AboutText(3'599'000'000'000), "about 59 min 59 s");
  EXPECT_EQ(AboutText(3'600'000'000'000), "about 1 h 0 min");
  EXPECT_EQ(AboutText(97'559'000'000'000), "about 27 h 5 min");
  EXPECT_EQ(MemoryText(512), "512 bytes");
  EXPECT_EQ(MemoryText(1536), "1.5 KiB");
  EXPECT_EQ(MemoryText(uint64_t{3} << 40), "3.0 TiB");
  EXPECT_EQ(FactorText(1.318), "1.32x");
  EXPECT_EQ(TimeOfDayText(1'700'000'000), "2023-11-14 22:13 UTC");
}

}  // namespace
}  // namespace cotune::cli
