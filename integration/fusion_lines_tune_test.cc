// A tune logs each form and region that it lists or leaves out, once for each cell.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/testing/tune_on_ranks.h"
#include "fmt/format.h"
#include "fusion/fusion_recipes.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The first choice fuses up to what the rules allow, and the second runs collectives alone.
std::vector<ScriptedChoice> OneOfTwoFuses(int /*rank*/) {
  ScriptedChoice one = Scripted("one", 100'000);
  one.is_default = true;
  one.fused_cost_ns = [](uint64_t /*bytes*/, size_t /*operations*/) { return 80'000; };
  return {one, Scripted("two", 90'000)};
}

Tune TuneOf(const std::string& program, const FusionRecipes& recipes) {
  Tune tune;
  tune.choices = OneOfTwoFuses;
  tune.node_programs = {program};
  tune.node_sizes = {{1024}};
  tune.recipes = &recipes;
  return tune;
}

// The beginning of each line for the program at so many rows.
std::string Subject(const Tune& tune, uint64_t rows) {
  const Program program = ProgramOfNode(tune, 0);
  return fmt::format("program {} {:016x} at {} rows: ", program.graph().name(),
                     program.graph().digest(), rows);
}

TEST(FusionLines, SayForEachCellWhatIsListedAndWhatIsNot) {
  const FusionRecipes recipes;
  Tune tune = TuneOf(
      "program small\n%x = input f32 [R, 4]\n%s = all_reduce sum %x\n%a = neg %s\n%y = relu %a\n"
      "return %y\n",
      recipes);
  tune.node_sizes = {{1024, 4096}};
  tune.settings.fusion.max_depth = 1;
  const std::vector<RankView> views = RunTune(tune);
  ASSERT_TRUE(views[0].outcome.has_value()) << views[0].outcome.error().ToText();
  std::vector<std::string> expected;
  for (const uint64_t rows : {64, 256}) {
    for (const char* const line :
         {"fuse=1 of %1 is listed", "via=split is listed",
          "via=bucket is left out: no two all_reduces or broadcasts of one reduction, root and "
          "dtype are independent",
          "fuse=1.2 is left out: deeper than max_fusion_depth (1)",
          "fuse=1.2.3&via=split is left out: two collectives on one path",
          "fuse=1.2&via=split is left out: deeper than max_fusion_depth (1)",
          "fuse=-3.-2.-1&via=split is left out: two collectives on one path",
          "fuse=-2.-1&via=split is left out: deeper than max_fusion_depth (1)",
          "scripted/two with fuse=1 is left out: it fuses nothing",
          "scripted/two with fuse=1&via=split is left out: it fuses nothing"}) {
      expected.push_back(Subject(tune, rows) + line);
    }
  }
  EXPECT_EQ(views[0].observer.lines, expected);
  EXPECT_THAT(views[1].observer.lines, IsEmpty()) << "the lists of all ranks are equal";
}

TEST(FusionLines, NameTheCollectiveOfEachRegion) {
  const FusionRecipes recipes;
  Tune tune = TuneOf(
      "program pair\n%x = input f32 [R, 4]\n%y = input f32 [R, 4]\n%s = all_reduce sum %x\n"
      "%t = all_reduce max %y\n%u = neg %s\n%v = relu %t\nreturn %u, %v\n",
      recipes);
  const std::vector<RankView> views = RunTune(tune);
  ASSERT_TRUE(views[0].outcome.has_value()) << views[0].outcome.error().ToText();
  const std::string subject = Subject(tune, 64);
  EXPECT_THAT(
      views[0].observer.lines,
      ElementsAre(subject + "fuse=2 of %2 is listed", subject + "fuse=2 of %3 is listed",
                  subject + "via=split is listed",
                  subject +
                      "via=bucket is left out: no two all_reduces or broadcasts of one reduction, "
                      "root and dtype are independent",
                  subject + "fuse=2.4&via=split is left out: two collectives on one path",
                  subject + "fuse=-4.-2&via=split is left out: two collectives on one path",
                  subject + "scripted/two with fuse=2 is left out: it fuses nothing",
                  subject + "scripted/two with fuse=2&via=split is left out: it fuses nothing"));
}

TEST(FusionLines, AreMissingForASingleCollective) {
  const FusionRecipes recipes;
  for (const RankView& view : RunTune(TuneOf("", recipes))) {
    EXPECT_THAT(view.observer.lines, IsEmpty());
  }
}

}  // namespace
}  // namespace cotune
