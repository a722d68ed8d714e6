#include "plugins/ucx/choice_list.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace cotune::ucx {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

std::vector<Choice> Runnable(const Problem& problem) {
  std::vector<Choice> choices = ListChoices(problem);
  std::erase_if(choices, [](const Choice& choice) { return !choice.reason.empty(); });
  return choices;
}

const Choice* Find(const std::vector<Choice>& choices, const std::string& name) {
  const auto found = std::find_if(choices.begin(), choices.end(),
                                  [&](const Choice& choice) { return choice.name == name; });
  return found == choices.end() ? nullptr : &*found;
}

TEST(ChoiceListTest, EveryListHasOneDefaultThatRunsAndNamesOfItsOwn) {
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kAllGather, Collective::kReduceScatter,
        Collective::kAllToAll, Collective::kBroadcast}) {
    for (int world_size = 1; world_size <= kRanksMax; ++world_size) {
      for (const uint64_t count : {0ull, 1ull, 1000ull, 300'000ull, 50'000'000ull}) {
        const Problem problem{.collective = collective, .count = count, .world_size = world_size};
        const std::vector<Choice> choices = ListChoices(problem);
        const auto is_default = [](const Choice& c) { return c.is_default; };
        ASSERT_EQ(std::count_if(choices.begin(), choices.end(), is_default), 1);
        std::set<std::string> names;
        for (const Choice& choice : choices) {
          EXPECT_TRUE(names.insert(choice.name).second) << choice.name;
          EXPECT_TRUE(choice.reason.empty() || !choice.is_default);
          EXPECT_LE(choice.name.size(), 95u);
          EXPECT_LE(choice.reason.size(), 143u);
          EXPECT_LE(choice.numerics.size(), 31u);
        }
        // Also at the sizes between: a neighbour's winner can be made ready wherever it may be.
        EXPECT_LE(choices.size(), 64u);
      }
    }
  }
}

TEST(ChoiceListTest, RadixesBeyondTheRanksAreLeftOut) {
  const Problem problem{.collective = Collective::kAllReduce, .count = 100, .world_size = 3};
  std::vector<std::string> names;
  for (const Choice& choice : Runnable(problem)) names.push_back(choice.name);
  EXPECT_THAT(names,
              UnorderedElementsAre("knomial?radix=2", "knomial?radix=4", "scatter_gather?radix=2",
                                   "scatter_gather?radix=4", "ring", "double_tree"));
}

TEST(ChoiceListTest, TheOrderOfAdditionsIsTheClass) {
  const Problem problem{.collective = Collective::kAllReduce, .count = 100, .world_size = 5};
  const std::vector<Choice> choices = Runnable(problem);
  EXPECT_EQ(Find(choices, "knomial?radix=2")->numerics, "ucx.knomial.2");
  EXPECT_EQ(Find(choices, "scatter_gather?radix=2")->numerics, "ucx.knomial.2");
  EXPECT_EQ(Find(choices, "knomial?radix=8")->numerics, sdk::kRankOrderNumerics);
  EXPECT_EQ(Find(choices, "ring")->numerics, "ucx.ring.100");
  Problem integers = problem;
  integers.type = sdk::ElementType::kI32;
  EXPECT_EQ(Find(Runnable(integers), "ring")->numerics, sdk::kExactNumerics);
}

TEST(ChoiceListTest, MemoryIsSaid) {
  const Problem problem{.collective = Collective::kAllReduce, .count = 1 << 20, .world_size = 4};
  const std::vector<Choice> choices = Runnable(problem);
  ASSERT_NE(Find(choices, "ring?posts=8&segment=65536"), nullptr);
  // Two regions of a message for each of eight instances, and a line more.
  EXPECT_EQ(Find(choices, "ring?posts=8&segment=65536")->workspace_bytes, 8u * 2 * (65536 + 64));
}

TEST(ChoiceListTest, NamesThatAreNoneAndRefusedOnesAreToldApart) {
  const Problem problem{.collective = Collective::kAllReduce, .count = 4 << 20, .world_size = 4};
  for (const char* name :
       {"", "tree", "ring?radix=2", "knomial", "knomial?radix=3", "ring?segment=65536",
        "ring?posts=2", "ring?segment=65536&posts=2", "ring?posts=2&segment=1000",
        "knomial?radix=2&radix=2", "ring?", "ring?posts=99999999999999999999", "copy"}) {
    const auto schedule = ScheduleOf(problem, name, 0);
    ASSERT_FALSE(schedule) << name;
    EXPECT_EQ(schedule.error().status, COTUNE_INVALID_ARGUMENT) << name;
  }
  const auto refused = ScheduleOf(problem, "knomial?radix=2", 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().status, COTUNE_UNSUPPORTED);
  EXPECT_THAT(refused.error().message, HasSubstr("not offered above"));
  // A size between the measured ones runs what won beside it.
  Problem small = problem;
  small.count = 10;
  EXPECT_TRUE(ScheduleOf(small, "ring?posts=8&segment=524288", 3));
}

}  // namespace
}  // namespace cotune::ucx
