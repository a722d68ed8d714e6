#include "core/choice/choice_lists.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/testing/parsed.h"
#include "core/testing/scripted_ranks.h"
#include "core/testing/twin_recipes.h"
#include "fmt/format.h"

namespace cotune {
namespace {

using ::testing::Contains;
using ::testing::Eq;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::Optional;

ScriptedChoice Fusing(std::string name, std::string numerics) {
  ScriptedChoice choice;
  choice.name = std::move(name);
  choice.numerics = std::move(numerics);
  choice.cost_ns = [](uint64_t /*bytes*/) { return 1000; };
  choice.fused_cost_ns = [](uint64_t /*bytes*/, size_t /*operations*/) { return 1000; };
  return choice;
}

// Three choices that run regions: two add in the order of ranks, of which one keeps values wide,
// and the last one adds in another order.
std::vector<ScriptedChoice> ThreeChoices() {
  ScriptedChoice order = Fusing("order", "rank_order_f32");
  order.is_default = true;
  ScriptedChoice wide = Fusing("wide", "rank_order_f32");
  wide.keeps_values_wide = true;
  return {order, wide, Fusing("ring", "ring")};
}

// A group of one rank that lists choices for a program with two equal collectives, each with
// another operation that a region may absorb, and with the form via=once.
class ChoiceListsTest : public ::testing::Test {
 protected:
  explicit ChoiceListsTest(std::vector<ScriptedChoice> choices = ThreeChoices())
      : backend_(hub_, 0, std::move(choices)) {
    BackendGroups::Options options;
    options.name = "job";
    options.job_ranks = {0};
    groups_ = BackendGroups::Create({&backend_}, *exchange_, clock_, options).value();
  }

  void SetNumerics(NumericsRule numerics) {
    groups_->set_numerics(numerics);
    groups_->set_program_support({.part_backend = &backend_,
                                  .rounds_values = numerics == NumericsRule::kSame,
                                  .recipes = &recipes_});
  }
  Problem At(uint64_t rows) const { return program_.ProblemAtRows(rows, 7); }
  std::vector<std::string> Listed() const {
    std::vector<std::string> ids;
    for (const Choice& choice : ListChoicesOf(*groups_, program_, At(4)).choices) {
      ids.push_back(choice.id.text());
    }
    return ids;
  }
  std::optional<Choice> Find(const std::string& id) const {
    return FindChoice(*groups_, program_, At(4), Id(id));
  }

  HubForTest hub_{1};
  const std::unique_ptr<RankExchange> exchange_ = MakeExchangeForTest(hub_, 0);
  const MonotonicClock clock_;
  BackendForTest backend_;
  const TwinRecipes recipes_{/*with_regions=*/true};
  const Program program_ = Program::Bind(Graph("%x = input f32 [R, 2]\n%a = all_reduce sum %x\n"
                                               "%b = all_reduce sum %x\n%y = neg %a\n%z = relu %b\n"
                                               "return %y, %z\n"),
                                         {MemoryKind::kHost, 1, 1})
                               .value();
  std::unique_ptr<BackendGroups> groups_;
};

TEST_F(ChoiceListsTest, EveryListedChoiceIsFoundByEitherNumerics) {
  for (const NumericsRule numerics : {NumericsRule::kAny, NumericsRule::kSame}) {
    SCOPED_TRACE(Name(numerics));
    SetNumerics(numerics);
    EXPECT_THAT(Listed(), IsSupersetOf({"scripted/order", "scripted/order?fuse=2+scripted/order",
                                        "scripted/order?via=once"}));
    for (const Choice& choice : ListChoicesOf(*groups_, program_, At(4)).choices) {
      const std::optional<Choice> found = FindChoice(*groups_, program_, At(4), choice.id);
      ASSERT_TRUE(found.has_value()) << choice.id.text();
      EXPECT_EQ(found->id, choice.id);
      EXPECT_EQ(found->is_default, choice.is_default) << choice.id.text();
      EXPECT_EQ(found->numerics, choice.numerics) << choice.id.text();
    }
  }
}

TEST_F(ChoiceListsTest, BySameNumericsNoChoiceOfAnotherOrderIsFound) {
  const std::vector<std::string> of_another_order = {
      "scripted/ring", "scripted/ring?fuse=2", "scripted/ring?via=once",
      "scripted/order+scripted/ring", "scripted/order?fuse=2+scripted/ring?fuse=2"};
  SetNumerics(NumericsRule::kAny);
  for (const std::string& id : of_another_order) EXPECT_TRUE(Find(id).has_value()) << id;
  SetNumerics(NumericsRule::kSame);
  for (const std::string& id : of_another_order) {
    EXPECT_FALSE(Find(id).has_value()) << id;
    EXPECT_THAT(Listed(), Not(Contains(id)));
  }
  EXPECT_THAT(FindRefusal(*groups_, program_, At(4), Id("scripted/ring")),
              Optional(Eq("numerics=same: adds in another order (ring)")));
}

TEST_F(ChoiceListsTest, BySameNumericsAChoiceThatKeepsValuesWideRunsNoRegion) {
  SetNumerics(NumericsRule::kAny);
  EXPECT_TRUE(Find("scripted/wide?fuse=2").has_value());
  SetNumerics(NumericsRule::kSame);
  EXPECT_FALSE(Find("scripted/wide?fuse=2").has_value());
  EXPECT_TRUE(Find("scripted/wide").has_value());
  EXPECT_TRUE(Find("scripted/order?fuse=2").has_value());
}

// Nine choices run a region, and eight of them are listed. The last one has the best estimate; the
// one before it has none.
std::vector<ScriptedChoice> NineOfARegion() {
  std::vector<ScriptedChoice> choices = {Fusing("usual", "ring")};
  choices[0].is_default = true;
  choices[0].fused_cost_ns = nullptr;
  for (const char* name : {"a", "b", "c", "d", "e", "f", "g", "unknown", "cheap"}) {
    choices.push_back(Fusing(name, "ring"));
    choices.back().cost_us = 100;
  }
  choices[8].cost_us = -1;
  choices[9].cost_us = 1;
  return choices;
}

class RegionChoicesTest : public ChoiceListsTest {
 protected:
  RegionChoicesTest() : ChoiceListsTest(NineOfARegion()) {}
};

TEST_F(RegionChoicesTest, TheBestEstimatesAreListedBesideChoicesThatHaveNone) {
  SetNumerics(NumericsRule::kAny);
  const std::vector<std::string> ids = Listed();
  for (const char* name : {"cheap", "a", "b", "c", "d", "e", "f", "unknown"}) {
    EXPECT_THAT(ids, Contains(fmt::format("scripted/{}?fuse=2+scripted/usual", name)));
  }
  EXPECT_THAT(ids, Not(Contains("scripted/g?fuse=2+scripted/usual")));
}

}  // namespace
}  // namespace cotune
