// Regions by numerics=same: every value is rounded, and a backend that cannot do so refuses them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/testing/tune_on_ranks.h"
#include "fmt/format.h"
#include "fusion/fusion_recipes.h"

namespace cotune {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Field;
using ::testing::Not;

constexpr uint64_t kBytes = 1024;
// %2 is not rounded in the program as it is, so that by numerics=any no region ends there.
constexpr char kTwoDeep[] =
    "%x = input bf16 [R, 4]\n%s = all_reduce sum %x\n%a = mul %s, 3\n%y = add %a, 1\nreturn %y\n";

// Takes 100 us by itself, 50 us with one operation, and 80 us with two.
ScriptedChoice FusesOneForLess() {
  ScriptedChoice choice = Scripted("one", 100'000);
  choice.is_default = true;
  choice.numerics = "rank_order_f32";
  choice.fused_cost_ns = [](uint64_t /*bytes*/, size_t operations) {
    return operations == 1 ? 50'000 : 80'000;
  };
  return choice;
}

Tune TuneBy(NumericsRule numerics, const ScriptedChoice& choice, const FusionRecipes& recipes) {
  Tune tune;
  tune.settings.numerics = numerics;
  tune.choices = [choice](int /*rank*/) { return std::vector<ScriptedChoice>{choice}; };
  tune.node_programs = {kTwoDeep};
  tune.node_sizes = {{kBytes}};
  tune.recipes = &recipes;
  return tune;
}

// The winner on each rank, or its error.
std::vector<std::string> Winners(const Tune& tune, const std::vector<RankView>& views) {
  std::vector<std::string> winners;
  const Program program = ProgramOfNode(tune, 0);
  for (const RankView& view : views) {
    if (!view.outcome) return {view.outcome.error().ToText()};
    const int32_t index = view.outcome->table.Lookup(DispatchKey::Of(program.anchor()),
                                                     program.ProblemAt(kBytes, 7).bytes());
    if (index == DispatchTable::kNoChoice) return {"no winner"};
    winners.push_back(view.outcome->table.choices()[static_cast<size_t>(index)].text());
  }
  return winners;
}

TEST(FusionNumerics, ByTheSameNumericsARegionEndsAnywhereAndRoundsEveryValue) {
  for (const NumericsRule numerics : {NumericsRule::kAny, NumericsRule::kSame}) {
    SCOPED_TRACE(Name(numerics));
    const bool is_same = numerics == NumericsRule::kSame;
    const FusionRecipes recipes(numerics);
    const Tune tune = TuneBy(numerics, FusesOneForLess(), recipes);
    const std::vector<RankView> views = RunTune(tune);
    EXPECT_THAT(Winners(tune, views),
                Each(is_same ? "scripted/one?fuse=1" : "scripted/one?fuse=1.2"));
    for (const RankView& view : views) {
      EXPECT_EQ(view.roundings_of_regions, std::set<bool>{is_same});
    }
    const auto refused = Contains(Field(
        &Refusal::reason, "%2 is rounded where the region would end, and not in the program"));
    if (is_same) {
      EXPECT_THAT(views[0].cells.at(0).refusals, Not(refused));
    } else {
      EXPECT_THAT(views[0].cells.at(0).refusals, refused);
    }
  }
}

TEST(FusionNumerics, ABackendThatKeepsValuesWideRefusesTheRegionWithItsReason) {
  ScriptedChoice choice = FusesOneForLess();
  choice.keeps_values_wide = true;
  for (const NumericsRule numerics : {NumericsRule::kAny, NumericsRule::kSame}) {
    SCOPED_TRACE(Name(numerics));
    const bool is_same = numerics == NumericsRule::kSame;
    const FusionRecipes recipes(numerics);
    const Tune tune = TuneBy(numerics, choice, recipes);
    const std::vector<RankView> views = RunTune(tune);
    EXPECT_THAT(Winners(tune, views), Each(is_same ? "scripted/one" : "scripted/one?fuse=1.2"));
    std::vector<std::string> refused;
    for (const Refusal& refusal : views[0].cells.at(0).refusals) {
      if (refusal.reason == "it keeps values wide") refused.push_back(refusal.choice);
    }
    // Regions of a form that a backend refuses for one reason are one refusal.
    const std::vector<std::string> expected = {"scripted/one with fuse=1.2",
                                               "scripted/one with fuse=1.2&via=split"};
    EXPECT_EQ(refused, is_same ? expected : std::vector<std::string>());
  }
}

// A form has other collectives, and a class that is not known promises nothing about them.
TEST(FusionNumerics, AnUnknownClassRunsByItselfAlone) {
  ScriptedChoice choice = FusesOneForLess();
  choice.numerics = "";
  const FusionRecipes recipes(NumericsRule::kSame);
  Tune tune = TuneBy(NumericsRule::kSame, choice, recipes);
  EXPECT_THAT(Winners(tune, RunTune(tune)), Each("scripted/one"));
  tune.node_programs = {
      "%x = input f32 [R, 4]\n%y = input f32 [R, 4]\n%a = all_reduce sum %x\n"
      "%b = all_reduce sum %y\nreturn %a, %b\n"};
  EXPECT_THAT(Winners(tune, RunTune(tune)), Each("scripted/one"));
}

TEST(FusionNumerics, RanksThatDifferAreToldBeforeAnythingIsMade) {
  const FusionRecipes recipes;
  Tune tune = TuneBy(NumericsRule::kAny, FusesOneForLess(), recipes);
  tune.change_settings = [](int rank, TuningSettings& settings) {
    if (rank == 1) settings.numerics = NumericsRule::kSame;
  };
  for (const RankView& view : RunTune(tune)) {
    ASSERT_FALSE(view.outcome.has_value());
    EXPECT_EQ(view.outcome.error().what,
              "rank 1 disagrees about 'setting numerics': rank 1 has 'same', and rank 0 has 'any'");
    EXPECT_EQ(view.plans_prepared, 0);
  }
}

}  // namespace
}  // namespace cotune
