#include "core/base/processor_times.h"

#include "gtest/gtest.h"

namespace cotune {
namespace {

constexpr char kStat[] =
    "cpu  1110 30 60 2220 12 6 3 21 5 5\n"
    "cpu0 1000 10 20 2000 2 1 1 1 9 9\n"
    "cpu1 100 10 20 200 4 2 1 10 0 0\n"
    "cpu10 10 10 20 20 6 3 1 10 0 0\n"
    "intr 1 2 3\n"
    "ctxt 12\n";

TEST(ProcessorTimesTest, TheLinesOfTheProcessorsAreAddedUp) {
  // The sums of cpu1 and cpu10: user 110, nice 20, system 40, irq 5, softirq 2, steal 20; idle 220,
  // wait 10.
  const auto times = ParseProcessorTimes(kStat, {1, 10}, 100);
  ASSERT_TRUE(times.has_value());
  EXPECT_EQ(times->idle_ns, (220 + 10) * int64_t{10'000'000});
  EXPECT_EQ(times->counted_ns, (110 + 20 + 40 + 5 + 2 + 20 + 220 + 10) * int64_t{10'000'000});
}

TEST(ProcessorTimesTest, AProcessorWithoutALineGivesNothing) {
  EXPECT_FALSE(ParseProcessorTimes(kStat, {1, 2}, 100).has_value());
  EXPECT_FALSE(ParseProcessorTimes(kStat, {}, 100).has_value());
  EXPECT_FALSE(ParseProcessorTimes("", {0}, 100).has_value());
  EXPECT_FALSE(ParseProcessorTimes("cpu0 1 2 3\n", {0}, 100).has_value()) << "columns are missing";
}

TEST(ProcessorTimesTest, TimesOfThisProcessGrowWithItsWork) {
  const auto before = ReadProcessorTimes();
  if (!before) GTEST_SKIP() << "this system has no /proc/stat";
  volatile uint64_t work = 0;
  auto after = before;
  while (after && after->own_ns < before->own_ns + 20'000'000) {
    for (int i = 0; i < 1'000'000; ++i) work = work + 1;
    after = ReadProcessorTimes();
  }
  ASSERT_TRUE(after.has_value());
  EXPECT_GE(after->idle_ns, before->idle_ns);
  EXPECT_GE(after->counted_ns, before->counted_ns);
  EXPECT_GE(after->now_ns - before->now_ns, 1'000'000) << "a few processors at most work at once";
}

}  // namespace
}  // namespace cotune
