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
  EXPECT_EQ(Share({{"0", 0, 190 * kMs, 190 * kMs}}), -1) << "too short";
  EXPECT_EQ(Share({{"0", 0, 200 * kMs, 200 * kMs}}), 1);
  EXPECT_EQ(Share({{"0-15", 0, 790 * kMs, 790 * kMs}}), -1) << "too short on 16 processors";
  EXPECT_EQ(Share({{"0-15", 0, 800 * kMs, 800 * kMs}}), 1);
  EXPECT_EQ(Share({{"0-1", 0, 900 * kMs, 1000 * kMs}, {"1-2", 0, 900 * kMs, 1000 * kMs}}), -1)
      << "one rank's time would count as foreign to the other";
}

TEST(ForeignShareTest, OwnTimeBeyondTheBusyTimeIsNoLoad) {
  EXPECT_EQ(Share({{"0", 120 * kMs, 100 * kMs, 500 * kMs}}), 0) << "ticks are coarse";
}

}  // namespace
}  // namespace cotune
