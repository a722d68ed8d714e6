#include "integration/settings/duration.h"

#include <random>

#include "gtest/gtest.h"

namespace cotune {
namespace {

TEST(DurationTest, ReadsEveryUnit) {
  EXPECT_EQ(ParseDurationNs("7ns").value(), 7);
  EXPECT_EQ(ParseDurationNs("200us").value(), 200'000);
  EXPECT_EQ(ParseDurationNs("500ms").value(), 500'000'000);
  EXPECT_EQ(ParseDurationNs("30s").value(), 30'000'000'000);
  EXPECT_EQ(ParseDurationNs("5m").value(), 300'000'000'000);
  EXPECT_EQ(ParseDurationNs("2h").value(), 7'200'000'000'000);
  EXPECT_EQ(ParseDurationNs("0").value(), 0);
}

TEST(DurationTest, BareNumbersAreSecondsAndFractionsCount) {
  EXPECT_EQ(ParseDurationNs("3").value(), 3'000'000'000);
  EXPECT_EQ(ParseDurationNs("1.5").value(), 1'500'000'000);
  EXPECT_EQ(ParseDurationNs("0.25ms").value(), 250'000);
}

TEST(DurationTest, NamesWhatIsWrong) {
  const auto cause = [](const char* text) { return ParseDurationNs(text).error().cause; };
  EXPECT_EQ(cause(""), "it does not begin with a number");
  EXPECT_EQ(cause("soon"), "it does not begin with a number");
  EXPECT_EQ(cause("inf"), "it does not begin with a number");
  EXPECT_EQ(cause("-3s"), "it is negative");
  EXPECT_EQ(cause("-0s"), "it is negative");
  EXPECT_EQ(cause("3 s"), "unknown unit \" s\"; known: ns, us, ms, s, m, h");
  EXPECT_EQ(cause("3d"), "unknown unit \"d\"; known: ns, us, ms, s, m, h");
  EXPECT_EQ(cause("1001h"), "it is longer than 1000h");
  EXPECT_EQ(ParseDurationNs("3d").error().code, ErrorCode::kUsage);
}

TEST(DurationTest, FormatsInTheLargestExactUnit) {
  EXPECT_EQ(FormatDurationNs(0), "0s");
  EXPECT_EQ(FormatDurationNs(1), "1ns");
  EXPECT_EQ(FormatDurationNs(1'500'000'000), "1500ms");
  EXPECT_EQ(FormatDurationNs(90'000'000'000), "90s");
  EXPECT_EQ(FormatDurationNs(300'000'000'000), "5m");
}

TEST(DurationTest, ReadsBackWhatItWrites) {
  std::mt19937_64 random(7);
  const int64_t units[] = {1, 1'000, 1'000'000, 1'000'000'000, 60'000'000'000};
  for (int i = 0; i < 2000; ++i) {
    const int64_t duration_ns = static_cast<int64_t>(random() % 10'000) * units[i % 5];
    EXPECT_EQ(ParseDurationNs(FormatDurationNs(duration_ns)).value(), duration_ns);
  }
}

}  // namespace
}  // namespace cotune
