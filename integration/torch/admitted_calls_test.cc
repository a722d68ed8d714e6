#include "integration/torch/admitted_calls.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace cotune::torch_operators {
namespace {

TEST(CallCountersTest, AddCalls) {
  CallCounters counters;
  EXPECT_EQ(counters.Add(3, 0), 0U);
  EXPECT_EQ(counters.Add(3, 2), 2U);
  EXPECT_EQ(counters.Add(0, 1), 1U);
  EXPECT_EQ(counters.Add(3, 1), 3U);
  EXPECT_EQ(counters.Add(3, 0), 3U);
  EXPECT_EQ(counters.Add(2, 0), 0U);
}

TEST(CallCountersTest, HaveRoomUntilOneOfThemIsAtTheLimit) {
  CallCounters counters;
  counters.Add(0, 3);
  counters.Add(1, 4);
  EXPECT_TRUE(counters.HasRoom({}, 4));
  EXPECT_TRUE(counters.HasRoom(std::vector<uint32_t>{0, 7}, 4));
  EXPECT_FALSE(counters.HasRoom(std::vector<uint32_t>{0, 1}, 4));
  EXPECT_FALSE(counters.HasRoom(std::vector<uint32_t>{7}, 0));
}

TEST(CallCountersTest, ACounterThatOccursTwiceNeedsRoomForTwoCalls) {
  CallCounters counters;
  counters.Add(0, 2);
  EXPECT_TRUE(counters.HasRoom(std::vector<uint32_t>{0, 1, 0}, 4));
  EXPECT_FALSE(counters.HasRoom(std::vector<uint32_t>{0, 1, 0, 0}, 4));
  EXPECT_FALSE(counters.HasRoom(std::vector<uint32_t>{1, 1, 1, 1, 1}, 4));
}

TEST(AdmittedRangesTest, FindTheRangeOfACall) {
  AdmittedRanges ranges;
  EXPECT_EQ(ranges.Find(8), nullptr);
  ranges.Admit({.first_elements = 8, .last_elements = 15, .counters = {5}, .limit = 4});
  ranges.Admit({.first_elements = 32, .last_elements = 32, .counters = {}, .limit = 0});
  for (const uint64_t outside : {0, 7, 16, 31, 33}) {
    EXPECT_EQ(ranges.Find(outside), nullptr) << outside;
  }
  for (const uint64_t inside : {8, 9, 15}) {
    ASSERT_NE(ranges.Find(inside), nullptr) << inside;
    EXPECT_EQ(ranges.Find(inside)->counters, std::vector<uint32_t>{5});
  }
  ASSERT_NE(ranges.Find(32), nullptr);
  EXPECT_TRUE(ranges.Find(32)->counters.empty());
}

TEST(AdmittedRangesTest, ReplaceTheRangesThatOneOverlaps) {
  AdmittedRanges ranges;
  ranges.Admit({.first_elements = 1, .last_elements = 4, .counters = {6}, .limit = 4});
  ranges.Admit({.first_elements = 64, .last_elements = 255, .counters = {7}, .limit = 4});
  ranges.Admit({.first_elements = 5, .last_elements = 1000, .counters = {5}, .limit = 4});
  ASSERT_NE(ranges.Find(500), nullptr);
  EXPECT_EQ(ranges.Find(100)->counters, std::vector<uint32_t>{5});
  EXPECT_EQ(ranges.Find(4)->counters, std::vector<uint32_t>{6});
  ranges.Admit({.first_elements = 8, .last_elements = 10, .counters = {}, .limit = 0});
  EXPECT_EQ(ranges.Find(11), nullptr);
  ASSERT_NE(ranges.Find(10), nullptr);
  EXPECT_TRUE(ranges.Find(10)->counters.empty());
}

TEST(AdmittedRangesTest, DropThoseThatAreCounted) {
  AdmittedRanges ranges;
  ranges.Admit({.first_elements = 8, .last_elements = 15, .counters = {5}, .limit = 4});
  ranges.Admit({.first_elements = 16, .last_elements = 63, .counters = {}, .limit = 0});
  ranges.DropCounted();
  EXPECT_EQ(ranges.Find(8), nullptr);
  EXPECT_NE(ranges.Find(16), nullptr);
}

TEST(AdmittedRangesTest, AreForgottenWhenThereAreTooMany) {
  AdmittedRanges ranges;
  for (uint64_t i = 1; i <= 5000; ++i) {
    ranges.Admit({.first_elements = i, .last_elements = i, .counters = {}, .limit = 0});
    ASSERT_NE(ranges.Find(i), nullptr) << i;
  }
  EXPECT_EQ(ranges.Find(1), nullptr);
}

}  // namespace
}  // namespace cotune::torch_operators
