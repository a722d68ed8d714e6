#include "plugins/host/late_ranks.h"

#include <gtest/gtest.h>

#include <vector>

namespace cotune::host {
namespace {

using Kind = PublishedWait::Kind;

TEST(LateRanksTest, NobodyWithoutAWait) {
  const std::vector<RankState> states(3);
  EXPECT_EQ(LateRanks(states, 0), 0u);
}

TEST(LateRanksTest, TheRanksThatABarrierLacks) {
  std::vector<RankState> states(4);
  states[0] = {.arrivals = 5, .wait = {Kind::kArrivals, 0, 5}};
  states[1] = {.arrivals = 5, .wait = {Kind::kArrivals, 0, 5}};
  states[2].arrivals = 4;
  states[3].arrivals = 4;
  EXPECT_EQ(LateRanks(states, 0), 0b1100u);
  EXPECT_EQ(LateRanks(states, 1), 0b1100u);
}

TEST(LateRanksTest, FollowsAChainToItsEnd) {
  std::vector<RankState> states(4);
  for (const int r : {1, 2, 3}) {
    states[static_cast<size_t>(r)] = {
        .progress = ProgressNumber(7, 1),
        .wait = {Kind::kOneRank, static_cast<uint8_t>(r - 1), ProgressNumber(7, 2)}};
  }
  states[0].progress = ProgressNumber(7, 1);
  EXPECT_EQ(LateRanks(states, 3), 0b0001u);
  EXPECT_EQ(LateRanks(states, 1), 0b0001u);
}

TEST(LateRanksTest, AWaitThatIsOverIsNoExcuse) {
  std::vector<RankState> states(3);
  states[2] = {.wait = {Kind::kOneRank, 1, ProgressNumber(3, 1)}};
  states[1] = {.wait = {Kind::kOneRank, 0, ProgressNumber(3, 1)}};  // stopped inside it
  states[0].progress = ProgressNumber(3, 1);
  EXPECT_EQ(LateRanks(states, 2), 0b010u);
}

TEST(LateRanksTest, WaitForAllRanksCountsThoseBehind) {
  std::vector<RankState> states(3);
  states[0] = {.progress = 512, .wait = {Kind::kAllRanks, 0, 512}};
  states[1].progress = 511;
  states[2].progress = 513;
  EXPECT_EQ(LateRanks(states, 0), 0b010u);
  EXPECT_EQ(AwaitedRanks(states, states[0].wait), 0b010u);
}

TEST(LateRanksTest, ACircleBlamesTheAwaitedRank) {
  std::vector<RankState> states(2);
  states[0] = {.wait = {Kind::kOneRank, 1, 9}};
  states[1] = {.wait = {Kind::kOneRank, 0, 9}};
  EXPECT_EQ(LateRanks(states, 0), 0b10u);
}

TEST(LateRanksTest, NumbersWrapAround) {
  EXPECT_TRUE(HasReached(3, 0xfffffff0u));
  EXPECT_FALSE(HasReached(0xfffffff0u, 3));
  EXPECT_TRUE(HasReached(ProgressNumber(0x1000000u, 0), ProgressNumber(0xffffffu, 255)));
}

TEST(ControlBlockTest, WordsRoundTrip) {
  const PublishedWait wait{Kind::kOneRank, 63, 0xfedcba98u};
  EXPECT_EQ(UnpackWait(Pack(wait)), wait);
  const GroupFailure failure{GroupFailure::Kind::kLate, 63, 7};
  EXPECT_EQ(UnpackFailure(Pack(failure)), failure);
  EXPECT_NE(Pack(GroupFailure{GroupFailure::Kind::kDied, 0, 0}), 0u);
  EXPECT_EQ(Pack(GroupFailure{}), 0u);
}

}  // namespace
}  // namespace cotune::host
