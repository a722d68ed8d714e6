#include "gpu/device/rank_gpu.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace cotune::gpu {
namespace {

TEST(OrdinalOfRankTest, TheCurrentOneElseTheRanksElseTheOnlyOne) {
  EXPECT_EQ(OrdinalOfRank(0, 4, std::nullopt).value(), 0);
  EXPECT_EQ(OrdinalOfRank(3, 4, std::nullopt).value(), 3);
  EXPECT_EQ(OrdinalOfRank(0, 4, 2).value(), 2);
  EXPECT_EQ(OrdinalOfRank(3, 1, std::nullopt).value(), 0);
  EXPECT_EQ(OrdinalOfRank(3, 2, 1).value(), 1);
  EXPECT_EQ(OrdinalOfRank(5, 2, std::nullopt, true).value(), 1);
  EXPECT_EQ(OrdinalOfRank(1, 2, std::nullopt, true).value(), 1);
}

TEST(OrdinalOfRankTest, TooFewGpusAreAnErrorThatSaysSo) {
  const Result<int32_t> none = OrdinalOfRank(2, 2, std::nullopt);
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, ErrorCode::kEnvironment);
  EXPECT_EQ(none.error().what, "local rank 2 has no GPU: its process sees 2 of them");
  EXPECT_FALSE(OrdinalOfRank(0, 0, std::nullopt).has_value());
  EXPECT_FALSE(OrdinalOfRank(0, 0, std::nullopt, true).has_value());
}

TEST(CheckOneRankEachTest, TheFirstTwoThatShareAreNamed) {
  EXPECT_TRUE(CheckOneRankEach({}, {}).has_value());
  const std::vector<int> job_ranks = {4, 7, 1, 2, 0};
  const std::vector<std::string> apart = {"a", "b", "c"};
  EXPECT_TRUE(CheckOneRankEach(apart, job_ranks).has_value());
  const std::vector<std::string> unknown = {"", "b", ""};
  EXPECT_TRUE(CheckOneRankEach(unknown, job_ranks).has_value());
  const std::vector<std::string> shared = {"a", "b", "c", "b", "a"};
  const Status status = CheckOneRankEach(shared, job_ranks);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().what, "ranks 7 and 2 have the same GPU, b");
  EXPECT_EQ(status.error().ranks, (std::vector<int>{2, 7}));
}

}  // namespace
}  // namespace cotune::gpu
