#include "core/problem/forced_choices.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::HasSubstr;

TEST(ForcedChoicesTest, ReadsAListAndWritesItInOneOrder) {
  const ForcedChoices forced =
      ForcedChoices::Parse(" broadcast = nccl/auto , all_reduce=host/ring?chunk=65536").value();
  EXPECT_EQ(forced.text(), "all_reduce=host/ring?chunk=65536,broadcast=nccl/auto");
  EXPECT_EQ(ForcedChoices::Parse(forced.text()).value(), forced);
  ASSERT_NE(forced.Find(Collective::kAllReduce), nullptr);
  EXPECT_EQ(forced.Find(Collective::kAllReduce)->text(), "host/ring?chunk=65536");
  EXPECT_EQ(forced.Find(Collective::kAllGather), nullptr);
}

TEST(ForcedChoicesTest, AnEmptyTextForcesNothing) {
  for (const char* text : {"", "  "}) {
    const ForcedChoices forced = ForcedChoices::Parse(text).value();
    EXPECT_TRUE(forced.empty());
    EXPECT_EQ(forced.text(), "");
  }
}

TEST(ForcedChoicesTest, NamesWhatIsWrong) {
  const auto error = [](const char* text) {
    const Result<ForcedChoices> forced = ForcedChoices::Parse(text);
    EXPECT_FALSE(forced.has_value()) << text;
    if (forced) return std::string();
    EXPECT_EQ(forced.error().code, ErrorCode::kUsage);
    EXPECT_THAT(forced.error().next_step, HasSubstr("all_reduce=nccl/auto"));
    return forced.error().ToText();
  };
  EXPECT_THAT(error("all_reduce"), HasSubstr("\"all_reduce\" names no choice"));
  EXPECT_THAT(error("all_reduc=host/ring"), HasSubstr("did you mean all_reduce?"));
  EXPECT_THAT(error("all_reduce=ring"), HasSubstr("\"ring\" is no id of a choice"));
  EXPECT_THAT(error("all_reduce=host/ring,"), HasSubstr("element 2 of the list is empty"));
  EXPECT_THAT(error(",all_reduce=host/ring"), HasSubstr("element 1 of the list is empty"));
  EXPECT_THAT(error("all_reduce=host/ring,all_reduce=nccl/auto"),
              HasSubstr("all_reduce stands twice: with host/ring and with nccl/auto"));
  EXPECT_THAT(error("all_reduce=host/ring+host/tree"), HasSubstr("is a choice of a program"));
  EXPECT_THAT(error("all_reduce=host/ring?fuse=1"), HasSubstr("is a choice of a program"));
}

}  // namespace
}  // namespace cotune
