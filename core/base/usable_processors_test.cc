#include "core/base/usable_processors.h"

#include <sched.h>

#include <vector>

#include "gtest/gtest.h"

namespace cotune {
namespace {

size_t Count(std::vector<std::string> lists) { return CountDistinctProcessors(lists); }

TEST(UsableProcessorsTest, RanksThatAreBoundHaveOneEach) {
  EXPECT_EQ(Count({"0", "1", "2"}), 3u);
  EXPECT_EQ(Count({"0", "0", "0"}), 1u);
}

TEST(UsableProcessorsTest, SetsMayOverlap) {
  EXPECT_EQ(Count({"0-3", "0-3"}), 4u);
  EXPECT_EQ(Count({"0-3,8", "2-5", "8-9"}), 8u);
  EXPECT_EQ(Count({"8190-8191"}), 2u);
}

TEST(UsableProcessorsTest, WhatIsNoListCountsForNothing) {
  for (const char* list : {"", "x", "1-", "-1", "3-1", "1,", ",1", "1 2", "8192", "0-8192",
                           "99999999999999999999", "1,2,z"}) {
    EXPECT_EQ(Count({list}), 0u) << list;
  }
  EXPECT_EQ(Count({"nonsense", "4"}), 1u);
}

TEST(UsableProcessorsTest, NamesWhatThisProcessMayUse) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  EXPECT_EQ(Count({UsableProcessors()}), static_cast<size_t>(CPU_COUNT(&before)));
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(UsableProcessors(), std::to_string(first));
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(UsableProcessorsTest, AListNamesItsProcessors) {
  EXPECT_EQ(ProcessorsIn("0-2,8"), (std::vector<size_t>{0, 1, 2, 8}));
  EXPECT_TRUE(ProcessorsIn("1-").empty());
}

}  // namespace
}  // namespace cotune
