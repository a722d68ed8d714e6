#include "cli/output/refusal_groups.h"

#include "gtest/gtest.h"

namespace cotune::cli {
namespace {

TEST(RefusalGroupsTest, NoRefusalGivesNoGroup) { EXPECT_TRUE(GroupByReason({}).empty()); }

TEST(RefusalGroupsTest, EqualReasonsAreOneGroupWithTheFirstNamesAndTheCount) {
  std::vector<Refusal> refusals = {{"host/a", "too small"}, {"host/x", "odd"}};
  for (const char* name : {"host/b", "host/c", "host/d", "host/e"}) {
    refusals.push_back({name, "too small"});
  }
  const std::vector<RefusalGroup> groups = GroupByReason(refusals);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].choices, "host/a, host/b, host/c and 2 more (5 in all)");
  EXPECT_EQ(groups[0].reason, "too small");
  EXPECT_EQ(groups[1].choices, "host/x");
  EXPECT_EQ(groups[1].reason, "odd");
}

TEST(RefusalGroupsTest, ThreeChoicesAreAllNamed) {
  const std::vector<RefusalGroup> groups = GroupByReason({{"a", "r"}, {"b", "r"}, {"c", "r"}});
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(groups[0].choices, "a, b, c");
}

}  // namespace
}  // namespace cotune::cli
