#include "core/choice/form_choices.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/testing/parsed.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Problem OfBytes(uint64_t count) {
  Problem problem;
  problem.count = count;
  return problem;
}

std::vector<Choice> Ways(int count) {
  std::vector<Choice> choices;
  for (int i = 0; i < count; ++i) {
    choices.push_back({.id = Id("host/way" + std::to_string(i)), .is_default = i == 0});
  }
  return choices;
}

// A form whose collectives have different sizes, each with so many choices.
ChoiceCombinations Combinations(size_t collectives, int choices) {
  ChoiceCombinations made(collectives);
  for (size_t place = 0; place < collectives; ++place) {
    made.Add(OfBytes(place + 1), "", place, Ways(choices));
  }
  return made;
}

FormChoices TwoForms(int choices) {
  FormChoices forms;
  forms.Add("", Combinations(2, choices));
  forms.Add("once", Combinations(1, choices));
  return forms;
}

std::vector<std::string> Texts(const std::vector<Choice>& choices) {
  std::vector<std::string> texts;
  for (const Choice& choice : choices) texts.push_back(choice.id.text());
  return texts;
}

Verdict Timed(const std::string& id, int64_t median_ns) {
  Verdict verdict{.id = Id(id)};
  verdict.outcome = Outcome::kTimed;
  verdict.median_ns = median_ns;
  verdict.samples_ns = {median_ns};
  return verdict;
}

TEST(FormChoicesTest, TheFirstHeatHasAllForms) {
  const FormChoices forms = TwoForms(2);
  const std::vector<Choice> first = forms.First().choices;
  EXPECT_THAT(Texts(first), ElementsAre("host/way0", "host/way0+host/way1", "host/way1+host/way0",
                                        "host/way1", "host/way0?via=once", "host/way1?via=once"));
  for (const Choice& choice : first) {
    EXPECT_EQ(choice.is_default, choice.id.text() == "host/way0") << choice.id.text();
    const std::optional<Choice> found = forms.Find(choice.id);
    ASSERT_TRUE(found.has_value()) << choice.id.text();
    EXPECT_EQ(found->id, choice.id);
    EXPECT_EQ(found->is_default, choice.is_default);
  }
  EXPECT_EQ(forms.best_max(), 0u);
}

TEST(FormChoicesTest, FindsNoIdOfAnotherForm) {
  const FormChoices forms = TwoForms(2);
  for (const char* const text :
       {"host/way0?via=twice", "host/way0?via=once+host/way1?via=once", "host/way2?via=once",
        "host/way0?via=once+host/way1", "host/way0+host/way1?via=once", "host/way0?fuse=1",
        "host/way0?fuse=1&via=once"}) {
    EXPECT_FALSE(forms.Find(Id(text)).has_value()) << text;
  }
}

TEST(FormChoicesTest, TheSecondHeatCombinesTheChoicesOfTheFastestForm) {
  FormChoices forms;
  forms.Add("", Combinations(2, 9));
  forms.Add("other", Combinations(2, 9));
  EXPECT_GT(forms.best_max(), 0u);
  std::vector<Verdict> verdicts;
  for (const Choice& choice : forms.First().choices)
    verdicts.push_back(Timed(choice.id.text(), 1000));
  EXPECT_THAT(Texts(forms.Best({})), IsEmpty());
  const auto set = [&](const std::string& id, int64_t median_ns) {
    for (Verdict& verdict : verdicts) {
      if (verdict.id == Id(id)) verdict = Timed(id, median_ns);
    }
  };
  set("host/way3+host/way0", 900);
  set("host/way0?via=other+host/way5?via=other", 700);
  set("host/way4?via=other+host/way0?via=other", 800);
  const std::vector<Choice> best = forms.Best(verdicts);
  ASSERT_FALSE(best.empty());
  for (const Choice& choice : best) {
    EXPECT_EQ(choice.id.HostKey("via"), "other") << choice.id.text();
    EXPECT_FALSE(choice.is_default);
  }
  EXPECT_EQ(best.front().id.text(), "host/way4?via=other+host/way5?via=other");
}

// Two collectives, each with a region that takes half its time. A bucket of both is faster than the
// program with one region. That with both would take 500 ns.
TEST(FormChoicesTest, AFasterFormDoesNotHideRegionsThatAreFasterTogether) {
  ChoiceCombinations unfused(2);
  for (size_t place = 0; place < 2; ++place) {
    unfused.Add(OfBytes(place + 1), "", place,
                {{.id = Id("host/way"), .is_default = true}, {.id = Id("host/way?fuse=1")}});
  }
  FormChoices forms;
  forms.Add("", std::move(unfused));
  forms.Add("bucket", Combinations(1, 1));
  EXPECT_THAT(Texts(forms.First().choices),
              ElementsAre("host/way", "host/way?fuse=1+host/way", "host/way+host/way?fuse=1",
                          "host/way0?via=bucket"));
  std::vector<Verdict> verdicts = {Timed("host/way", 1000), Timed("host/way?fuse=1+host/way", 750),
                                   Timed("host/way+host/way?fuse=1", 750),
                                   Timed("host/way0?via=bucket", 700)};
  EXPECT_THAT(Texts(forms.Best(verdicts)), ElementsAre("host/way?fuse=1"));
  EXPECT_GE(forms.best_max(), 1u);
  verdicts.back() = Timed("host/way0?via=bucket", 500);
  EXPECT_THAT(Texts(forms.Best(verdicts)), IsEmpty()) << "they are not faster together";
  verdicts.back() = Timed("host/way0?via=bucket", 700);
  verdicts[1].interval_high_ns = verdicts[2].interval_high_ns = 1000;
  EXPECT_THAT(Texts(forms.Best(verdicts)), IsEmpty()) << "what they save is within the noise";
}

// Times of its first rounds do not compare with those of all rounds.
TEST(FormChoicesTest, AChoiceThatWasOutpacedMakesNoFormTheFastest) {
  FormChoices forms;
  forms.Add("", Combinations(2, 9));
  forms.Add("other", Combinations(2, 9));
  std::vector<Verdict> verdicts;
  for (const Choice& choice : forms.First().choices) {
    verdicts.push_back(Timed(choice.id.text(), 1000));
    if (choice.id.HostKey("via").empty()) continue;
    verdicts.back().median_ns = 700;
    verdicts.back().outcome = Outcome::kOutpaced;
  }
  const std::vector<Choice> best = forms.Best(verdicts);
  ASSERT_FALSE(best.empty());
  const auto is_unfused = [](const Choice& choice) { return choice.id.HostKey("via").empty(); };
  EXPECT_TRUE(is_unfused(best.front()));
  EXPECT_TRUE(std::is_partitioned(best.begin(), best.end(), is_unfused));
}

TEST(FormChoicesTest, TheBackendsOfAFormTakeTurnsForRoom) {
  std::vector<Choice> choices;
  for (int i = 0; i < 70; ++i) choices.push_back({.id = Id("nccl/way" + std::to_string(i))});
  for (int i = 0; i < 5; ++i) choices.push_back({.id = Id("cuda/way" + std::to_string(i))});
  ChoiceCombinations packed(1);
  packed.Add(OfBytes(16), "", 0, std::move(choices));
  FormChoices forms;
  forms.Add("", Combinations(1, 4));
  forms.Add("bucket", std::move(packed));
  const FormChoices::FirstHeat heat = forms.First();
  ASSERT_EQ(heat.choices.size(), kHeatChoicesMax);
  EXPECT_EQ(heat.choices[4].id.text(), "nccl/way0?via=bucket");
  EXPECT_EQ(heat.choices[5].id.text(), "cuda/way0?via=bucket");
  EXPECT_EQ(heat.left_out.size(), 15u);
  // The second heat has those that were left out if their form is the fastest.
  EXPECT_EQ(forms.best_max(), 15u);
  std::vector<Verdict> verdicts;
  for (const Choice& choice : heat.choices) verdicts.push_back(Timed(choice.id.text(), 1000));
  verdicts.back() = Timed(verdicts.back().id.text(), 500);
  EXPECT_EQ(forms.Best(verdicts).size(), 15u);
  EXPECT_EQ(forms.Best(verdicts).front().id, heat.left_out.front());
  verdicts.front() = Timed(verdicts.front().id.text(), 400);
  EXPECT_THAT(forms.Best(verdicts), IsEmpty());
}

// One collective with so many choices by itself, and with so many in a region.
ChoiceCombinations WithRegion(int bare, int fused) {
  std::vector<Choice> choices = Ways(bare);
  for (int i = 0; i < fused; ++i) {
    choices.push_back({.id = Id("host/way" + std::to_string(i) + "?fuse=1")});
  }
  ChoiceCombinations made(1);
  made.Add(OfBytes(1), "1", 0, std::move(choices));
  return made;
}

TEST(FormChoicesTest, OtherFormsAndRegionsShareTheRoomOfAHeat) {
  FormChoices forms;
  forms.Add("", WithRegion(40, 20));
  forms.Add("other", Combinations(1, 9));
  forms.Add("third", Combinations(1, 3));
  const FormChoices::FirstHeat heat = forms.First();
  EXPECT_EQ(heat.choices.size(), kHeatChoicesMax);
  std::map<std::string, int> count;
  for (const Choice& choice : heat.choices) {
    ++count[choice.id.HostKey("fuse") + choice.id.HostKey("via")];
  }
  // 24 places are left of 64: the region is listed first, and each form has one at least.
  EXPECT_EQ(count[""], 40);
  EXPECT_EQ(count["1"], 20);
  EXPECT_EQ(count["other"], 3);
  EXPECT_EQ(count["third"], 1);
  ASSERT_EQ(heat.left_out.size(), 8u);
  EXPECT_EQ(heat.left_out.front().text(), "host/way3?via=other");
  // One that was left out can be found, and run, all the same.
  EXPECT_TRUE(forms.Find(heat.left_out.front()).has_value());
}

// 100 numbers of one family: the first heat has one of them, and the second one has no room for all
// others.
TEST(FormChoicesTest, AFamilyOfManyNumbersStaysWithinTheRoomOfAHeat) {
  std::vector<Choice> numbers = Ways(1);
  for (int i = 0; i < 100; ++i) {
    numbers.push_back({.id = Id(fmt::format("host/ring?chunk={}", 1024 + i)), .cost_us = 1.0 + i});
  }
  ChoiceCombinations rewritten(1, ChoiceCombinations::Form::kRewritten);
  rewritten.Add(OfBytes(1), "", 0, numbers);
  FormChoices forms;
  forms.Add("", Combinations(1, 2));
  forms.Add("once", std::move(rewritten));
  const std::vector<Choice> first = forms.First().choices;
  EXPECT_THAT(Texts(first), ElementsAre("host/way0", "host/way1", "host/way0?via=once",
                                        "host/ring?chunk=1024&via=once"));
  std::vector<Verdict> verdicts;
  for (const Choice& choice : first) {
    verdicts.push_back(Timed(choice.id.text(), choice.id.HostKey("via").empty() ? 900 : 500));
  }
  verdicts.back().median_ns = 300;
  const std::vector<Choice> best = forms.Best(verdicts);
  EXPECT_EQ(best.size(), kHeatChoicesMax);
  EXPECT_LE(best.size(), forms.best_max());
  EXPECT_EQ(best.front().id.text(), "host/ring?chunk=1025&via=once");
  EXPECT_EQ(forms.SetAside(verdicts).size(), 99u);
}

// 7 x 7 combinations of two collectives by themselves, and 8 choices of a region of the first.
TEST(FormChoicesTest, RegionsDoNotKeepCombinationsOfCollectivesOutOfTheHeat) {
  ChoiceCombinations two(2);
  std::vector<Choice> first = Ways(7);
  for (int i = 0; i < 8; ++i) {
    first.push_back({.id = Id("host/fused" + std::to_string(i) + "?fuse=1")});
  }
  two.Add(OfBytes(1), "1", 0, std::move(first));
  two.Add(OfBytes(2), "", 1, Ways(7));
  FormChoices forms;
  forms.Add("", std::move(two));
  std::vector<Verdict> verdicts;
  int bare = 0;
  for (const Choice& choice : forms.First().choices) {
    if (!choice.id.has_host_keys()) ++bare;
    verdicts.push_back(Timed(choice.id.text(), 1000));
  }
  EXPECT_EQ(bare, 49);
  EXPECT_EQ(verdicts.size(), 57u);
  // The second heat combines the fastest region with other choices of the second collective.
  EXPECT_GT(forms.best_max(), 0u);
  for (Verdict& verdict : verdicts) {
    if (verdict.id == Id("host/fused3?fuse=1+host/way0")) verdict = Timed(verdict.id.text(), 500);
    if (verdict.id == Id("host/way0+host/way2")) verdict = Timed(verdict.id.text(), 600);
  }
  const std::vector<Choice> best = forms.Best(verdicts);
  ASSERT_FALSE(best.empty());
  EXPECT_EQ(best.front().id.text(), "host/fused3?fuse=1+host/way2");
}

TEST(FormChoicesTest, AnIdThatRepeatsItsStepIsThatOfTheOneStep) {
  const FormChoices forms = TwoForms(2);
  const std::optional<Choice> found = forms.Find(Id("host/way1+host/way1"));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->id.text(), "host/way1");
}

TEST(FormChoicesTest, WhatRunsEachCollectiveByItselfAlwaysRaces) {
  FormChoices forms;
  forms.Add("", WithRegion(100, 8));
  forms.Add("other", Combinations(1, 2));
  const FormChoices::FirstHeat heat = forms.First();
  ASSERT_EQ(heat.choices.size(), 102u);
  EXPECT_EQ(heat.choices[100].id.text(), "host/way0?fuse=1");
  EXPECT_EQ(heat.choices[101].id.text(), "host/way0?via=other");
  EXPECT_EQ(heat.left_out.size(), 8u);
}

TEST(FormChoicesTest, CombinationsThatAreNotPossibleAreLeftOut) {
  FormChoices forms;
  forms.Add("", WithRegion(2, 2));
  forms.KeepPossible([](const Choice& choice) { return choice.id.text() != "host/way0?fuse=1"; });
  EXPECT_THAT(Texts(forms.First().choices),
              ElementsAre("host/way0", "host/way1", "host/way1?fuse=1"));
  EXPECT_FALSE(forms.Find(Id("host/way0?fuse=1")).has_value());
  EXPECT_TRUE(forms.Find(Id("host/way1?fuse=1")).has_value());
}

}  // namespace
}  // namespace cotune
