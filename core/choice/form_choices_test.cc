#include "core/choice/form_choices.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ChoiceId Id(const std::string& text) { return ChoiceId::Parse(text).value(); }

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
    made.Add(OfBytes(place + 1), place, Ways(choices));
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
  const std::vector<Choice> first = forms.First();
  EXPECT_THAT(Texts(first),
              ElementsAre("host/way0", "host/way0+host/way1", "host/way1+host/way0", "host/way1",
                          "host/way0?via=once", "host/way1?via=once"));
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
  for (const Choice& choice : forms.First()) verdicts.push_back(Timed(choice.id.text(), 1000));
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

}  // namespace
}  // namespace cotune
