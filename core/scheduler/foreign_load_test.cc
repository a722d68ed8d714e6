#include "core/scheduler/foreign_load.h"

#include <vector>

#include "gtest/gtest.h"

namespace cotune {
namespace {

constexpr int64_t kMs = 1'000'000;

// -1: not known.
double Share(std::vector<ProcessorUse> ranks) { return ForeignShare(ranks).value_or(-1); }

TEST(ForeignShareTest, RanksThatShareTheirProcessorsAreCountedTogether) {
  // 1,000 ms on two processors: the ranks used 600, everything together 900.
  EXPECT_DOUBLE_EQ(
      Share({{"0-1", 400 * kMs, 900 * kMs, 1000 * kMs}, {"0-1", 200 * kMs, 900 * kMs, 1000 * kMs}}),
      0.3);
  EXPECT_DOUBLE_EQ(Share({{"0-1", 500 * kMs, 1000 * kMs, 1000 * kMs},
                          {"0-1", 500 * kMs, 1000 * kMs, 1000 * kMs}}),
                   0);
}

TEST(ForeignShareTest, RanksMayHaveObservedForDifferentTimes) {
  EXPECT_DOUBLE_EQ(
      Share({{"0-1", 300 * kMs, 750 * kMs, 1000 * kMs}, {"0-1", 60 * kMs, 150 * kMs, 240 * kMs}}),
      0.625 - 0.55);
}

TEST(ForeignShareTest, TheMostDisturbedProcessorsOfBoundRanksCount) {
  EXPECT_DOUBLE_EQ(
      Share({{"0", 450 * kMs, 500 * kMs, 500 * kMs}, {"1", 250 * kMs, 500 * kMs, 500 * kMs}}), 0.5);
}

TEST(ForeignShareTest, UnknownTimesGiveNoShare) {
  EXPECT_EQ(Share({}), -1);
  EXPECT_EQ(Share({{"0-1", 0, 900 * kMs, 1000 * kMs}, {"0-1", 0, 0, 0}}), -1) << "a rank has none";
  EXPECT_EQ(Share({{"", 0, 900 * kMs, 1000 * kMs}}), -1) << "the processors are not known";
  EXPECT_EQ(Share({{"0", 0, 74 * kMs, 74 * kMs}}), -1) << "too short";
  EXPECT_EQ(Share({{"0", 0, 75 * kMs, 75 * kMs}}), 1);
  EXPECT_EQ(Share({{"0-15", 0, 1190 * kMs, 1190 * kMs}}), -1) << "too short on 16 processors";
  EXPECT_EQ(Share({{"0-15", 0, 1200 * kMs, 1200 * kMs}}), 1);
  EXPECT_EQ(Share({{"0-1", 0, 900 * kMs, 1000 * kMs}, {"1-2", 0, 900 * kMs, 1000 * kMs}}), -1)
      << "one rank's time would count as foreign to the other";
}

TEST(ForeignShareTest, OwnTimeBeyondTheBusyTimeIsNoLoad) {
  EXPECT_EQ(Share({{"0", 120 * kMs, 100 * kMs, 500 * kMs}}), 0) << "ticks are coarse";
}

// Two processors for 80 ms: of 160 ms, they were idle for 40, and this rank used 70.
TEST(UseBetweenTest, IdleTimeIsTakenFromThatOfTheClock) {
  const ProcessorTimes before{
      .own_ns = 5 * kMs, .idle_ns = 1000 * kMs, .counted_ns = 3000 * kMs, .now_ns = 7 * kMs};
  const ProcessorTimes after{
      .own_ns = 75 * kMs, .idle_ns = 1040 * kMs, .counted_ns = 3130 * kMs, .now_ns = 87 * kMs};
  EXPECT_EQ(UseBetween("0-1", before, after),
            (ProcessorUse{"0-1", 70 * kMs, 120 * kMs, 160 * kMs}));
}

TEST(UseBetweenTest, ProcessorsAreNotIdleForLongerThanTheClockSays) {
  const ProcessorTimes after{.idle_ns = 90 * kMs, .counted_ns = 90 * kMs, .now_ns = 80 * kMs};
  EXPECT_EQ(UseBetween("0", {}, after), (ProcessorUse{"0", 0, 0, 80 * kMs}));
}

TEST(UseBetweenTest, ASystemThatDoesNotCountGivesNothing) {
  EXPECT_EQ(UseBetween("0-1", {}, {.own_ns = kMs, .now_ns = 80 * kMs}), (ProcessorUse{"0-1"}));
  // The steps of several kinds of use may be missing at both ends.
  EXPECT_NE(UseBetween("0", {}, {.counted_ns = 30 * kMs, .now_ns = 80 * kMs}), (ProcessorUse{"0"}));
}

}  // namespace
}  // namespace cotune
