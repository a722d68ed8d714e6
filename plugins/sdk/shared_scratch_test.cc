#include "plugins/sdk/shared_scratch.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <new>
#include <vector>

namespace cotune::sdk {
namespace {

constexpr uint64_t kMiB = 1 << 20;

TEST(SharedScratchTest, PlansOfAGroupHaveTheSameMemory) {
  SharedScratch scratch;
  const auto first = scratch.Take(kMiB);
  EXPECT_EQ(scratch.Take(kMiB), first);
  EXPECT_EQ(scratch.Take(1), first) << "less fits into it";
  EXPECT_EQ(reinterpret_cast<uintptr_t>(first.get()) % 64, 0u);
  std::memset(first.get(), 1, kMiB);
}

TEST(SharedScratchTest, GroupsHaveMemoryOfTheirOwn) {
  SharedScratch one;
  SharedScratch other;
  EXPECT_NE(one.Take(kMiB), other.Take(kMiB));
}

TEST(SharedScratchTest, MoreThanThereIsIsNewMemoryAndTheOldOneStays) {
  SharedScratch scratch;
  const auto small = scratch.Take(kMiB);
  std::memset(small.get(), 1, kMiB);
  const auto large = scratch.Take(kMiB + 1);
  EXPECT_NE(large, small);
  std::memset(large.get(), 2, kMiB + 1);
  EXPECT_EQ(small.get()[kMiB - 1], std::byte{1});
  EXPECT_EQ(scratch.Take(kMiB), small) << "the smallest block that is enough";
}

TEST(SharedScratchTest, ABlockIsFreedWithItsLastShare) {
  SharedScratch scratch;
  auto first = scratch.Take(kMiB);
  auto second = scratch.Take(kMiB);
  const std::weak_ptr<std::byte> block = first;
  first.reset();
  EXPECT_FALSE(block.expired());
  second.reset();
  EXPECT_TRUE(block.expired());
  EXPECT_NE(scratch.Take(kMiB), nullptr);
}

// One plan of each cell lives on, and the larger ones of its cell do not.
TEST(SharedScratchTest, PlansThatLiveOnFindTheBlockOfTheirSizeAgain) {
  SharedScratch scratch;
  std::vector<SharedScratch::Share> kept;
  for (int cell = 0; cell < 10; ++cell) {
    kept.push_back(scratch.Take(kMiB));
    scratch.Take(8 * kMiB);
    EXPECT_EQ(kept.back(), kept.front());
  }
}

TEST(SharedScratchTest, ASmallPlanKeepsNoBlockOfAMuchLargerOne) {
  SharedScratch scratch;
  auto large = scratch.Take(32 * kMiB);
  const auto medium = scratch.Take(2 * kMiB);
  EXPECT_EQ(medium, large) << "16 times as large";
  const auto small = scratch.Take(kMiB);
  EXPECT_NE(small, large);
  EXPECT_EQ(scratch.Take(64 << 10), small);
}

TEST(SharedScratchTest, NothingNeedsNoMemory) {
  SharedScratch scratch;
  EXPECT_EQ(scratch.Take(0), nullptr);
}

TEST(SharedScratchTest, MoreThanAnyMachineHasIsABadAlloc) {
  SharedScratch scratch;
  EXPECT_THROW(scratch.Take(UINT64_MAX), std::bad_alloc);
}

}  // namespace
}  // namespace cotune::sdk
