#include "core/choice/numerics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Choice Listed(const std::string& id, const std::string& numerics, bool is_default = false,
              double cost_us = -1) {
  return {.id = ChoiceId::Parse(id).value(),
          .is_default = is_default,
          .cost_us = cost_us,
          .numerics = numerics};
}

// "default" stands behind the name of the default.
std::vector<std::string> Names(const ChoiceList& list) {
  std::vector<std::string> names;
  for (const Choice& choice : list.choices) {
    names.push_back(choice.id.text() + (choice.is_default ? " default" : ""));
  }
  return names;
}

TEST(KeepOneNumericsTest, RankOrderIsKeptWhereSomeChoiceHasIt) {
  ChoiceList list{{Listed("a/ring", "ring", true, 1), Listed("a/dear", "rank_order_f32", false, 9),
                   Listed("a/cheap", "rank_order_f32", false, 2), Listed("a/moved", "exact"),
                   Listed("b/cheaper", "rank_order_f32", false, 1), Listed("b/silent", "")},
                  {{"c", "it is not here"}}};
  KeepOneNumerics(list);
  EXPECT_THAT(Names(list), ElementsAre("a/dear", "a/cheap default", "a/moved", "b/cheaper"));
  ASSERT_EQ(list.refusals.size(), 3u);
  EXPECT_EQ(list.refusals[0].reason, "it is not here");
  EXPECT_EQ(list.refusals[1].choice, "a/ring");
  EXPECT_EQ(list.refusals[1].reason, "numerics=same: adds in another order (ring)");
  EXPECT_EQ(list.refusals[2].choice, "b/silent");
  EXPECT_EQ(list.refusals[2].reason,
            "numerics=same: its backend does not say in which order it combines elements");
}

TEST(KeepOneNumericsTest, ElsewhereTheClassOfTheDefaultIsKept) {
  ChoiceList list{{Listed("a/tree", "tree"), Listed("a/ring", "ring", true),
                   Listed("a/ring?x=2", "ring"), Listed("a/moved", "exact")},
                  {}};
  KeepOneNumerics(list);
  EXPECT_THAT(Names(list), ElementsAre("a/ring default", "a/ring?x=2", "a/moved"));
}

TEST(KeepOneNumericsTest, AnUnknownClassIsThatOfOneChoiceAlone) {
  ChoiceList list{{Listed("a/one", "", true), Listed("a/two", ""), Listed("a/ring", "ring")}, {}};
  KeepOneNumerics(list);
  EXPECT_THAT(Names(list), ElementsAre("a/one default"));
  EXPECT_EQ(list.refusals.size(), 2u);
}

TEST(KeepOneNumericsTest, ExactChoicesAloneAllRace) {
  ChoiceList list{{Listed("a/one", "exact", true), Listed("b/two", "exact")}, {}};
  KeepOneNumerics(list);
  EXPECT_THAT(Names(list), ElementsAre("a/one default", "b/two"));
  EXPECT_THAT(list.refusals, IsEmpty());
}

TEST(KeepOneNumericsTest, WithoutEstimatesTheFirstChoiceBecomesTheDefault) {
  ChoiceList list{{Listed("a/ring", "ring", true), Listed("b/one", "rank_order_f32"),
                   Listed("b/two", "rank_order_f32")},
                  {}};
  KeepOneNumerics(list);
  EXPECT_THAT(Names(list), ElementsAre("b/one default", "b/two"));
}

TEST(KeepOneNumericsTest, AnEmptyListStaysEmpty) {
  ChoiceList list;
  KeepOneNumerics(list);
  EXPECT_THAT(list.choices, IsEmpty());
}

TEST(KeepNumericsOfTest, ARegionHasTheClassOfItsCollective) {
  const std::vector<Choice> bare = {Listed("a/moved", "exact"), Listed("a/one", "rank_order_f32")};
  ChoiceList list{{Listed("a/one", "rank_order_f32"), Listed("a/ring", "ring"),
                   Listed("b/moved", "exact"), Listed("b/silent", "")},
                  {}};
  KeepNumericsOf(bare, list);
  EXPECT_THAT(Names(list), ElementsAre("a/one", "b/moved"));
  ASSERT_EQ(list.refusals.size(), 2u);
  EXPECT_EQ(list.refusals[0].choice, "a/ring");
  EXPECT_EQ(list.refusals[0].reason, "numerics=same: adds in another order (ring)");
  EXPECT_EQ(list.refusals[1].choice, "b/silent");
}

TEST(KeepNumericsOfTest, BesideExactChoicesAloneARegionIsExact) {
  ChoiceList list{{Listed("a/one", "rank_order_f32"), Listed("a/moved", "exact")}, {}};
  KeepNumericsOf(std::vector<Choice>{Listed("a/moved", "exact")}, list);
  EXPECT_THAT(Names(list), ElementsAre("a/moved"));
}

TEST(KeepNumericsOfTest, AnUnknownClassComparesWithNoRegion) {
  ChoiceList list{{Listed("a/one", ""), Listed("a/moved", "exact")}, {}};
  KeepNumericsOf(std::vector<Choice>{Listed("a/one", "", true)}, list);
  EXPECT_THAT(Names(list), ElementsAre("a/moved"));
}

TEST(JoinNumericsTest, NamesWhatDecidesTheBitsOfAProgram) {
  const auto join = [](std::vector<std::string> classes) { return JoinNumerics(classes); };
  EXPECT_EQ(join({"exact", "exact"}), "exact");
  EXPECT_EQ(join({"rank_order_f32", "exact", "rank_order_f32"}), "rank_order_f32");
  EXPECT_EQ(join({"tree", "ring.64"}), "ring.64+tree");
  EXPECT_EQ(join({"exact", ""}), "");
}

}  // namespace
}  // namespace cotune
