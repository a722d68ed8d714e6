#include "plugins/fake/script.h"

#include "gtest/gtest.h"

namespace cotune::fake {
namespace {

TEST(ScriptTest, LinesBecomeChoices) {
  const Script script = ParseScript(
      "# costs\n"
      "choice fast?chunk=1 default cost_us=10.5 cost_per_kib_us=2 model_us=11\n"
      "\n"
      "choice odd refuse=needs_two_ranks bytes_min=8 bytes_max=64;choice late hangs_on=1 "
      "collective_prepare");
  ASSERT_EQ(script.mistake, "");
  ASSERT_EQ(script.choices.size(), 3u);
  EXPECT_EQ(script.choices[0].name, "fast?chunk=1");
  EXPECT_TRUE(script.choices[0].is_default);
  EXPECT_EQ(script.choices[0].cost_us, 10.5);
  EXPECT_EQ(script.choices[0].cost_per_kib_us, 2);
  EXPECT_EQ(script.choices[0].model_us, 11);
  EXPECT_EQ(script.choices[1].refuse, "needs two ranks");
  EXPECT_EQ(script.choices[1].bytes_min, 8u);
  EXPECT_EQ(script.choices[1].bytes_max, 64u);
  EXPECT_EQ(script.choices[2].hangs_on, 1);
  EXPECT_TRUE(script.choices[2].collective_prepare);
}

TEST(ScriptTest, MistakesNameTheLine) {
  EXPECT_EQ(ParseScript("").mistake, "line 1: there is no choice");
  EXPECT_EQ(ParseScript("choice a\nchoise b").mistake, "line 2: expected 'choice', found 'choise'");
  EXPECT_EQ(ParseScript("choice").mistake, "line 1: a choice needs a name");
  EXPECT_EQ(ParseScript("choice a cost_us=x").mistake, "line 1: cannot read 'cost_us=x'");
  EXPECT_EQ(ParseScript("choice a wrong_on=1x").mistake, "line 1: cannot read 'wrong_on=1x'");
  EXPECT_EQ(ParseScript("choice a fast").mistake, "line 1: cannot read 'fast'");
}

}  // namespace
}  // namespace cotune::fake
