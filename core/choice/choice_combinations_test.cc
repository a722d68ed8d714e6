#include "core/choice/choice_combinations.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "fmt/format.h"

namespace cotune {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

Problem Of(Collective collective) {
  Problem problem;
  problem.cls.collective = collective;
  return problem;
}

// "b/<prefix>0", "b/<prefix>1", ...; one of them is the default.
std::vector<Choice> Choices(const std::string& prefix, int count, int default_index = 0) {
  std::vector<Choice> choices;
  for (int i = 0; i < count; ++i) {
    Choice& choice =
        choices.emplace_back(Choice{.id = *ChoiceId::Parse(fmt::format("b/{}{}", prefix, i))});
    choice.is_default = i == default_index;
    choice.is_capturable = choice.is_reproducible = true;
    choice.cost_us = 1 + i;
    choice.workspace_bytes = 10;
  }
  return choices;
}

// Three collectives: the first and the last are the same problem.
ChoiceCombinations Three(int of_ends, int of_middle,
                         ChoiceCombinations::Form form = ChoiceCombinations::Form::kUnchanged) {
  ChoiceCombinations combinations(3, form);
  combinations.Add(Of(Collective::kReduceScatter), "", 0, Choices("x", of_ends, 2));
  EXPECT_FALSE(combinations.AddToEqual(Of(Collective::kAllGather), "", 1));
  EXPECT_FALSE(combinations.AddToEqual(Of(Collective::kReduceScatter), "fuse=1", 2));
  combinations.Add(Of(Collective::kAllGather), "", 1, Choices("y", of_middle));
  EXPECT_TRUE(combinations.AddToEqual(Of(Collective::kReduceScatter), "", 2));
  return combinations;
}

std::vector<std::string> Texts(const std::vector<Choice>& choices) {
  std::vector<std::string> texts;
  for (const Choice& choice : choices) texts.push_back(choice.id.text());
  return texts;
}

Verdict Timed(const std::string& id, int64_t median_ns, Outcome outcome = Outcome::kTimed) {
  Verdict verdict{.id = *ChoiceId::Parse(id), .outcome = outcome};
  verdict.median_ns = median_ns;
  return verdict;
}

// The choices in a region are two families, each of which has one choice for the second race.
TEST(ChoiceCombinationsTest, WithACollectiveThatNothingRunsThereIsNoCombinationInEitherRace) {
  ChoiceCombinations combinations(2);
  std::vector<Choice> of_first = Choices("x", 2);
  for (const char* text : {"b/pull?chunk=1&fuse=1", "b/pull?chunk=2&fuse=1",
                           "b/push?chunk=1&fuse=1", "b/push?chunk=2&fuse=1"}) {
    of_first.push_back({.id = *ChoiceId::Parse(text)});
    of_first.back().cost_us = 1;
  }
  combinations.Add(Of(Collective::kReduceScatter), "fuse=1", 0, of_first);
  combinations.Add(Of(Collective::kAllGather), "", 1, {});
  EXPECT_THAT(combinations.First(), IsEmpty());
  EXPECT_TRUE(combinations.has_all_first());
  EXPECT_EQ(combinations.best_max(), 0u);
  EXPECT_THAT(combinations.Best({}), IsEmpty());
  EXPECT_THAT(combinations.SetAside({}), IsEmpty());
}

// Its only choice runs it in a region.
TEST(ChoiceCombinationsTest, ACollectiveThatRunsInARegionAloneHasNoSecondRace) {
  ChoiceCombinations combinations(1);
  combinations.Add(Of(Collective::kReduceScatter), "fuse=1", 0,
                   {{.id = *ChoiceId::Parse("b/pull?fuse=1")}});
  EXPECT_THAT(combinations.First(), IsEmpty());
  EXPECT_EQ(combinations.best_max(), 0u);
  EXPECT_THAT(combinations.SetAside({}), IsEmpty());
}

TEST(ChoiceCombinationsTest, FewAreAllThere) {
  const std::vector<Choice> all = Three(3, 2).First();
  EXPECT_THAT(Texts(all), ElementsAre("b/x0+b/y0+b/x0", "b/x0+b/y1+b/x0", "b/x1+b/y0+b/x1",
                                      "b/x1+b/y1+b/x1", "b/x2+b/y0+b/x2", "b/x2+b/y1+b/x2"));
  for (const Choice& choice : all) {
    EXPECT_EQ(choice.is_default, choice.id.text() == "b/x2+b/y0+b/x2");
    EXPECT_TRUE(choice.is_capturable);
    EXPECT_EQ(choice.workspace_bytes, 30u);
  }
  EXPECT_EQ(all[5].cost_us, 3 + 2 + 3);
  EXPECT_THAT(Three(3, 2).Best({}), IsEmpty());
  EXPECT_EQ(Three(3, 2).best_max(), 0u);
  EXPECT_THAT(Three(3, 0).First(), IsEmpty()) << "nothing runs the second collective";
}

TEST(ChoiceCombinationsTest, ChoicesOfOneProblemAreAllThereHoweverMany) {
  const ChoiceCombinations combinations = Three(100, 1);
  EXPECT_THAT(combinations.First(), SizeIs(100));
  EXPECT_TRUE(combinations.has_all_first());
  EXPECT_EQ(combinations.best_max(), 0u);
  EXPECT_THAT(combinations.Best({}), IsEmpty());
}

TEST(ChoiceCombinationsTest, OfManyOneCollectiveAtATimeLeavesItsDefault) {
  const ChoiceCombinations combinations = Three(13, 5);
  const std::vector<std::string> first = Texts(combinations.First());
  ASSERT_THAT(first, SizeIs(1 + 12 + 4));
  EXPECT_EQ(combinations.best_max(), 16u) << "four of each";
  EXPECT_EQ(first[0], "b/x2+b/y0+b/x2");
  const std::set<std::string> different(first.begin(), first.end());
  EXPECT_EQ(different.size(), first.size());
  for (int i = 0; i < 13; ++i) {
    EXPECT_TRUE(different.contains(fmt::format("b/x{}+b/y0+b/x{}", i, i)));
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(different.contains(fmt::format("b/x2+b/y{}+b/x2", i)));
  }
}

// A problem with one choice takes no part of the 16: the other two have four each, not two.
TEST(ChoiceCombinationsTest, ProblemsWithOneChoiceShareInNothing) {
  ChoiceCombinations combinations(4);
  const std::vector<std::pair<std::string, int>> groups = {{"v", 1}, {"x", 9}, {"w", 1}, {"y", 9}};
  for (size_t place = 0; place < groups.size(); ++place) {
    Problem problem = Of(Collective::kAllReduce);
    problem.count = 1 + place;
    combinations.Add(problem, "", place, Choices(groups[place].first, groups[place].second));
  }
  EXPECT_EQ(combinations.best_max(), 16u);
  std::vector<Verdict> verdicts;
  for (int i = 0; i < 9; ++i) {
    verdicts.push_back(Timed(fmt::format("b/v0+b/x{}+b/w0+b/y0", i), 100 + i));
    if (i > 0) verdicts.push_back(Timed(fmt::format("b/v0+b/x0+b/w0+b/y{}", i), 100 + i));
  }
  // All of four and four but the seven that the first race has.
  EXPECT_THAT(combinations.Best(verdicts), SizeIs(9));
}

TEST(ChoiceCombinationsTest, ASecondRaceCombinesTheFastestOfEach) {
  const ChoiceCombinations combinations = Three(13, 9);
  std::vector<Verdict> verdicts = {
      Timed("b/x2+b/y0+b/x2", 900),
      // The four fastest of the first group, in the order 7, 1, 12, 5.
      Timed("b/x5+b/y0+b/x5", 640, Outcome::kOutpaced), Timed("b/x12+b/y0+b/x12", 630),
      Timed("b/x1+b/y0+b/x1", 620), Timed("b/x7+b/y0+b/x7", 610),
      Timed("b/x4+b/y0+b/x4", 650, Outcome::kOutpaced),
      // Three of the second group have a time with the defaults; one of them failed later.
      Timed("b/x2+b/y3+b/x2", 700), Timed("b/x2+b/y8+b/x2", 800),
      Timed("b/x2+b/y6+b/x2", 100, Outcome::kDeadline)};
  Verdict wrong = Timed("b/x2+b/y7+b/x2", 50);
  wrong.wrong_elements = 1;
  verdicts.push_back(wrong);
  // y0 is the default of its group, so that what it makes with the four has a verdict.
  EXPECT_THAT(
      Texts(combinations.Best(verdicts)),
      ElementsAre("b/x7+b/y3+b/x7", "b/x7+b/y8+b/x7", "b/x1+b/y3+b/x1", "b/x1+b/y8+b/x1",
                  "b/x12+b/y3+b/x12", "b/x12+b/y8+b/x12", "b/x5+b/y3+b/x5", "b/x5+b/y8+b/x5"));
}

// The default of the second collective is broken, so that nothing else of the first has a time.
TEST(ChoiceCombinationsTest, WhereADefaultFailsTheFirstOfTheListAreCombined) {
  const std::vector<Verdict> verdicts = {Timed("b/x2+b/y0+b/x2", 0, Outcome::kLaunchFailed),
                                         Timed("b/x2+b/y4+b/x2", 300), Timed("b/x2+b/y5+b/x2", 200),
                                         Timed("b/x0+b/y0+b/x0", 0, Outcome::kLaunchFailed),
                                         Timed("b/x3+b/y0+b/x3", 0, Outcome::kLaunchFailed)};
  // x1 was left out, because it has ended a tune: it has no verdict. What has one is not raced
  // again: x2 with y4 or y5.
  EXPECT_THAT(
      Texts(Three(13, 9).Best(verdicts)),
      UnorderedElementsAre("b/x0+b/y5+b/x0", "b/x0+b/y4+b/x0", "b/x3+b/y5+b/x3", "b/x3+b/y4+b/x3"));
}

TEST(ChoiceCombinationsTest, OfManyCollectivesOneCombinationIsAdded) {
  ChoiceCombinations combinations(6);
  std::vector<Verdict> verdicts;
  for (size_t place = 0; place < 6; ++place) {
    Problem problem = Of(Collective::kAllReduce);
    problem.count = 1 + place;
    combinations.Add(problem, "", place, Choices("z", 3));
    std::string id;
    for (size_t i = 0; i < 6; ++i)
      id += fmt::format("{}b/z{}", i == 0 ? "" : "+", i == place ? 1 : 0);
    verdicts.push_back(Timed(id, 5));
  }
  verdicts.push_back(Timed("b/z0", 10));
  ASSERT_THAT(combinations.First(), SizeIs(1 + 6 * 2));
  EXPECT_EQ(combinations.best_max(), 1u);
  EXPECT_THAT(Texts(combinations.Best(verdicts)), ElementsAre("b/z1"));
}

// Two collectives with chunks of three sizes; the default has the second. The first one has a
// region with as many.
ChoiceCombinations WithChunks(ChoiceCombinations::Form form) {
  ChoiceCombinations combinations(2, form);
  std::vector<Choice> of_x;
  std::vector<Choice> of_y;
  for (const char* const chunk : {"1", "2", "3"}) {
    of_x.push_back({.id = *ChoiceId::Parse(fmt::format("b/x?chunk={}", chunk))});
    of_y.push_back({.id = *ChoiceId::Parse(fmt::format("b/y?chunk={}", chunk))});
  }
  of_x[1].is_default = of_y[1].is_default = true;
  of_y.push_back({.id = *ChoiceId::Parse("b/z")});
  for (const char* const chunk : {"3", "2", "1"}) {
    of_x.push_back({.id = *ChoiceId::Parse(fmt::format("b/x?chunk={}&fuse=1", chunk))});
  }
  combinations.Add(Of(Collective::kReduceScatter), "", 0, std::move(of_x));
  combinations.Add(Of(Collective::kAllGather), "", 1, std::move(of_y));
  return combinations;
}

TEST(ChoiceCombinationsTest, ARewrittenFormBeginsWithOneChoiceOfEachFamily) {
  const ChoiceCombinations combinations = WithChunks(ChoiceCombinations::Form::kRewritten);
  EXPECT_THAT(Texts(combinations.First()), ElementsAre("b/x?chunk=2+b/y?chunk=2", "b/x?chunk=2+b/z",
                                                       "b/x?chunk=2&fuse=1+b/y?chunk=2"));
  EXPECT_FALSE(combinations.has_all_first());
  // Its second race has the others of the fastest families.
  const std::vector<Verdict> verdicts = {Timed("b/x?chunk=2+b/y?chunk=2", 100),
                                         Timed("b/x?chunk=2+b/z", 110),
                                         Timed("b/x?chunk=2&fuse=1+b/y?chunk=2", 80)};
  EXPECT_THAT(Texts(combinations.Best(verdicts)),
              ElementsAre("b/x?chunk=2&fuse=1+b/z", "b/x?chunk=3&fuse=1+b/y?chunk=2",
                          "b/x?chunk=1&fuse=1+b/y?chunk=2", "b/x?chunk=2&fuse=1+b/y?chunk=1",
                          "b/x?chunk=2&fuse=1+b/y?chunk=3"));
  EXPECT_GE(combinations.best_max(), 5u);
}

TEST(ChoiceCombinationsTest, NamesTheChoicesThatRacedInNoCombination) {
  const ChoiceCombinations combinations = WithChunks(ChoiceCombinations::Form::kRewritten);
  const auto set_aside = [&](const std::vector<Verdict>& verdicts) {
    std::vector<std::string> texts;
    for (const ChoiceId& id : combinations.SetAside(verdicts)) texts.push_back(id.text());
    return texts;
  };
  EXPECT_THAT(set_aside({}),
              ElementsAre("b/x?chunk=1+b/y?chunk=2", "b/x?chunk=3+b/y?chunk=2",
                          "b/x?chunk=3&fuse=1+b/y?chunk=2", "b/x?chunk=1&fuse=1+b/y?chunk=2",
                          "b/x?chunk=2+b/y?chunk=1", "b/x?chunk=2+b/y?chunk=3"));
  EXPECT_THAT(set_aside({Timed("b/x?chunk=1+b/z", 5), Timed("b/x?chunk=3&fuse=1+b/y?chunk=1", 6)}),
              ElementsAre("b/x?chunk=3+b/y?chunk=2", "b/x?chunk=1&fuse=1+b/y?chunk=2",
                          "b/x?chunk=2+b/y?chunk=3"));
}

TEST(ChoiceCombinationsTest, TheProgramAsItIsHasAllChoicesWithoutARegion) {
  const ChoiceCombinations combinations = WithChunks(ChoiceCombinations::Form::kUnchanged);
  const std::vector<std::string> first = Texts(combinations.First());
  EXPECT_THAT(first, SizeIs(3 * 4 + 1));
  EXPECT_EQ(first.back(), "b/x?chunk=2&fuse=1+b/y?chunk=2");
  std::vector<Verdict> verdicts;
  for (const std::string& id : first) verdicts.push_back(Timed(id, 100));
  EXPECT_THAT(Texts(combinations.Best(verdicts)), Contains("b/x?chunk=3&fuse=1+b/y?chunk=1"));
}

// The choice that leads its family fails. Another one of its family may be the fastest of all.
TEST(ChoiceCombinationsTest, ASecondRaceHasTheFamilyOfALeadingChoiceThatFails) {
  const ChoiceCombinations combinations = WithChunks(ChoiceCombinations::Form::kRewritten);
  const std::vector<std::string> first = Texts(combinations.First());
  std::vector<Verdict> verdicts;
  for (const std::string& id : first) verdicts.push_back(Timed(id, 100));
  const auto region = std::find(first.begin(), first.end(), "b/x?chunk=2&fuse=1+b/y?chunk=2");
  ASSERT_NE(region, first.end());
  Verdict& failed = verdicts[static_cast<size_t>(region - first.begin())];
  failed = Timed(*region, 0, Outcome::kLaunchFailed);
  EXPECT_THAT(Texts(combinations.Best(verdicts)), Contains("b/x?chunk=3&fuse=1+b/y?chunk=2"));
}

// The interval of x1 lies above the median of the fastest; that of x7 does not.
TEST(ChoiceCombinationsTest, ASecondRaceLeavesOutWhatWasSlowerBeyondTheNoise) {
  const ChoiceCombinations combinations = Three(13, 9, ChoiceCombinations::Form::kRewritten);
  std::vector<Verdict> verdicts = {Timed("b/x2+b/y0+b/x2", 900), Timed("b/x5+b/y0+b/x5", 600),
                                   Timed("b/x1+b/y0+b/x1", 620), Timed("b/x7+b/y0+b/x7", 640),
                                   Timed("b/x2+b/y3+b/x2", 700)};
  verdicts[0].interval_low_ns = 890;
  verdicts[2].interval_low_ns = 601;
  verdicts[3].interval_low_ns = 599;
  EXPECT_THAT(Texts(combinations.Best(verdicts)), ElementsAre("b/x5+b/y3+b/x5", "b/x7+b/y3+b/x7"));
}

TEST(ChoiceCombinationsTest, FindsEveryCombinationAndNothingElse) {
  const ChoiceCombinations combinations = Three(13, 9);
  const auto find = [&](const std::string& id) {
    const std::optional<Choice> found = combinations.Find(*ChoiceId::Parse(id));
    return found ? found->id.text() : "";
  };
  EXPECT_EQ(find("b/x11+b/y8+b/x11"), "b/x11+b/y8+b/x11");
  EXPECT_EQ(find("b/x11+b/y8+b/x10"), "") << "equal collectives run by one choice";
  EXPECT_EQ(find("b/x11+b/y9+b/x11"), "");
  EXPECT_EQ(find("b/x11+b/y8"), "");
  EXPECT_EQ(find("b/x11"), "") << "the second collective has no such choice";
  EXPECT_TRUE(combinations.Find(*ChoiceId::Parse("b/x2+b/y0+b/x2"))->is_default);
  EXPECT_EQ(ChoiceCombinations(0).Find(*ChoiceId::Parse("b/x2")), std::nullopt);
}

}  // namespace
}  // namespace cotune
