#include "plugins/fake/script.h"

#include <string>

#include "gtest/gtest.h"
#include "plugins/api/cotune_backend_v1.h"

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

TEST(ScriptTest, EveryWordSetsItsField) {
  const Script script = ParseScript(
      "choice a only=all_gather,broadcast prepare_fails_on=1 prepare_delay_ms=20 "
      "prepare_delay_on=2 prepare_refused_on=9 prepare_only_in=pair launch_fails_on=3 "
      "launch_fails_at=4 wrong_on=5 overruns_on=6 "
      "missing_on=7 names_late \r\n"
      "refuse_all  too much at once \n"
      "group_fails_on 8;create_fails no luck;create_unsupported no such device");
  ASSERT_EQ(script.mistake, "");
  ASSERT_EQ(script.choices.size(), 1u);
  const ScriptedChoice& choice = script.choices[0];
  EXPECT_EQ(choice.collectives, (1u << COTUNE_ALL_GATHER) | (1u << COTUNE_BROADCAST));
  EXPECT_FALSE(choice.is_default);
  EXPECT_FALSE(choice.collective_prepare);
  EXPECT_EQ(choice.prepare_fails_on, 1);
  EXPECT_EQ(choice.prepare_delay_ms, 20);
  EXPECT_EQ(choice.prepare_delay_on, 2);
  EXPECT_EQ(choice.prepare_refused_on, 9);
  EXPECT_EQ(choice.prepare_only_in, "pair");
  EXPECT_EQ(choice.launch_fails_on, 3);
  EXPECT_EQ(choice.launch_fails_at, 4);
  EXPECT_EQ(choice.wrong_on, 5);
  EXPECT_EQ(choice.overruns_on, 6);
  EXPECT_EQ(choice.missing_on, 7);
  EXPECT_TRUE(choice.names_late);
  EXPECT_EQ(choice.hangs_on, -1);
  EXPECT_EQ(choice.model_us, -1);
  EXPECT_EQ(script.refuse_all, "too much at once");
  EXPECT_EQ(script.group_fails_on, 8);
  EXPECT_EQ(script.create_fails, "no luck");
  EXPECT_EQ(script.create_unsupported, "no such device");
}

TEST(ScriptTest, PartsAreThereWhereTheScriptNamesThem) {
  EXPECT_FALSE(ParseScript("choice a").parts.has_value());
  EXPECT_TRUE(ParseScript("choice a; parts").parts.has_value());
  const Script script = ParseScript(
      "choice a; parts cost_us=2.5 refuse=no_more prepare_fails_on=1 prepare_refused_on=2 "
      "launch_fails_on=3 launch_fails_at=4 wrong_on=5; breach part_launch throws on=1");
  ASSERT_EQ(script.mistake, "");
  ASSERT_TRUE(script.parts.has_value());
  EXPECT_EQ(script.parts->cost_us, 2.5);
  EXPECT_EQ(script.parts->refuse, "no more");
  EXPECT_EQ(script.parts->prepare_fails_on, 1);
  EXPECT_EQ(script.parts->prepare_refused_on, 2);
  EXPECT_EQ(script.parts->launch_fails_on, 3);
  EXPECT_EQ(script.parts->launch_fails_at, 4);
  EXPECT_EQ(script.parts->wrong_on, 5);
  EXPECT_EQ(script.breaches.at(0).function, "part_launch");
  EXPECT_EQ(ParseScript("choice a; parts; parts").mistake, "line 3: 'parts' is there twice");
  EXPECT_EQ(ParseScript("choice a; parts slow").mistake, "line 2: cannot read 'slow'");
  EXPECT_EQ(ParseScript("choice a; parts refuse=").mistake, "line 2: cannot read 'refuse='");
}

TEST(ScriptTest, ChoicesThatFuseRunRegions) {
  EXPECT_FALSE(ParseScript("choice a").has_regions());
  EXPECT_TRUE(ParseScript("choice a region_refused=no").has_regions());
  const Script script = ParseScript(
      "choice a fuses=3 fuse_cost_us=2.5 region_refused=too_many_rows region_compile_fails "
      "keeps_wide fits_any_region only_regions "
      "region_hangs_on=1 wrong_epilogue_on=2 bits_differ_on=4; choice b\n"
      "refuse_regions not on this machine; breach region_progress never_done choice=a; "
      "breach region_list_choices throws");
  ASSERT_EQ(script.mistake, "");
  EXPECT_TRUE(script.has_regions());
  const ScriptedChoice& choice = script.choices[0];
  EXPECT_EQ(choice.fuses, 3u);
  EXPECT_EQ(choice.fuse_cost_us, 2.5);
  EXPECT_EQ(choice.region_refused, "too many rows");
  EXPECT_TRUE(choice.region_compile_fails);
  EXPECT_TRUE(choice.keeps_wide && choice.fits_any_region && choice.only_regions);
  EXPECT_EQ(choice.region_hangs_on, 1);
  EXPECT_EQ(choice.wrong_epilogue_on, 2);
  EXPECT_EQ(choice.bits_differ_on, 4);
  EXPECT_EQ(script.choices[1].fuses, 0u);
  EXPECT_EQ(script.choices[1].fuse_cost_us, -1);
  EXPECT_FALSE(script.choices[1].region_compile_fails);
  EXPECT_FALSE(script.choices[1].keeps_wide || script.choices[1].fits_any_region);
  EXPECT_FALSE(script.choices[1].only_regions);
  EXPECT_EQ(script.refuse_regions, "not on this machine");
  EXPECT_EQ(script.breaches.at(0).how, How::kNeverDone);
  EXPECT_EQ(script.breaches.at(1).function, "region_list_choices");
  EXPECT_EQ(ParseScript("choice a fuses=0").mistake, "line 1: cannot read 'fuses=0'");
  EXPECT_EQ(ParseScript("choice a; refuse_regions").mistake, "line 2: refuse_regions needs a text");
}

TEST(ScriptTest, BreachesNameFunctionHowAndWhere) {
  const Script script = ParseScript(
      "choice a; breach launch crashes on=1 choice=a at=3; breach list_choices never_returns\n"
      "breach progress never_done; breach destroy throws; breach prepare throws_int");
  ASSERT_EQ(script.mistake, "");
  ASSERT_EQ(script.breaches.size(), 5u);
  EXPECT_EQ(script.breaches[0].function, "launch");
  EXPECT_EQ(script.breaches[0].how, How::kCrashes);
  EXPECT_EQ(script.breaches[0].on, 1);
  EXPECT_EQ(script.breaches[0].choice, "a");
  EXPECT_EQ(script.breaches[0].at, 3);
  EXPECT_EQ(script.breaches[1].function, "list_choices");
  EXPECT_EQ(script.breaches[1].how, How::kNeverReturns);
  EXPECT_EQ(script.breaches[1].on, -1);
  EXPECT_EQ(script.breaches[1].choice, "");
  EXPECT_EQ(script.breaches[1].at, 1);
  EXPECT_EQ(script.breaches[2].how, How::kNeverDone);
  EXPECT_EQ(script.breaches[3].how, How::kThrows);
  EXPECT_EQ(script.breaches[4].how, How::kThrowsInt);
  const auto mistake = [](const std::string& line) {
    return ParseScript("choice a\n" + line).mistake;
  };
  EXPECT_EQ(mistake("breach start crashes"), "line 2: there is no function 'start'");
  EXPECT_EQ(mistake("breach launch"), "line 2: launch cannot be told to ''");
  EXPECT_EQ(mistake("breach launch never_done"), "line 2: launch cannot be told to 'never_done'");
  EXPECT_EQ(mistake("breach launch crashes at=0"), "line 2: cannot read 'at=0'");
  EXPECT_EQ(mistake("breach launch crashes choice="), "line 2: cannot read 'choice='");
  EXPECT_EQ(mistake("breach launch crashes loudly"), "line 2: cannot read 'loudly'");
}

TEST(ScriptTest, MistakesNameTheLine) {
  EXPECT_EQ(ParseScript("").mistake, "line 1: there is no choice");
  EXPECT_EQ(ParseScript("choice a\nchoise b").mistake,
            "line 2: expected 'choice', 'parts', 'breach', 'refuse_all', 'refuse_regions', "
            "'group_fails_on', 'create_fails', 'create_unsupported' or 'libraries', found "
            "'choise'");
  EXPECT_EQ(ParseScript("choice").mistake, "line 1: a choice needs a name");
  EXPECT_EQ(ParseScript("choice a cost_us=x").mistake, "line 1: cannot read 'cost_us=x'");
  EXPECT_EQ(ParseScript("choice a wrong_on=1x").mistake, "line 1: cannot read 'wrong_on=1x'");
  EXPECT_EQ(ParseScript("choice a fast").mistake, "line 1: cannot read 'fast'");
  EXPECT_EQ(ParseScript("choice a wrong_on=-2").mistake, "line 1: cannot read 'wrong_on=-2'");
  EXPECT_EQ(ParseScript("choice a cost_us=inf").mistake, "line 1: cannot read 'cost_us=inf'");
  EXPECT_EQ(ParseScript("choice a cost_us=nan").mistake, "line 1: cannot read 'cost_us=nan'");
  EXPECT_EQ(ParseScript("choice a only=all_reduce,").mistake,
            "line 1: cannot read 'only=all_reduce,'");
  EXPECT_EQ(ParseScript("choice a\n\n# b\nchoice a").mistake, "line 4: 'a' is there twice");
  EXPECT_EQ(ParseScript("choice a default\nchoice b default").mistake,
            "2 choices are marked default");
  EXPECT_EQ(ParseScript("choice a;refuse_all ").mistake, "line 2: refuse_all needs a text");
  EXPECT_EQ(ParseScript("choice a;libraries libfake 2.1").libraries, "libfake 2.1");
  EXPECT_EQ(ParseScript("choice a;group_fails_on x").mistake, "line 2: cannot read the rank 'x'");
  const std::string longest(95, 'n');
  EXPECT_EQ(ParseScript("choice " + longest).mistake, "");
  EXPECT_EQ(ParseScript("choice " + longest + "n").mistake,
            "line 1: the name '" + longest + "n' is too long");
}

}  // namespace
}  // namespace cotune::fake
