#include "fusion/fusion_recipes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "core/recipe/recipe_id.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

ProgramGraph Graph(const std::string& text) {
  Result<ProgramGraph> graph = ProgramGraph::Parse(text);
  EXPECT_TRUE(graph.has_value()) << graph.error().ToText();
  return std::move(*graph);
}

ProgramGraph Norm() {
  return Graph(
      "%x = input bf16 [R, 8]\n%r = input bf16 [R, 8]\n%g = input bf16 [1, 8]\n"
      "%s = all_reduce sum %x\n%t = add %s, %r\n%y = rms_norm %t, %g\n%z = mul %y, 3\n"
      "return %z, %t into %r\n");
}

ChoiceId Id(const std::string& text) { return ChoiceId::Parse(text).value(); }

TEST(FusionRecipesTest, TheUnfusedFormHasTheRegions) {
  const Program program = Program::Bind(Norm(), {MemoryKind::kHost, 4, 4}).value();
  const FormList list = FusionRecipes().Forms(program, 16, {});
  ASSERT_THAT(list.forms, SizeIs(1));
  EXPECT_EQ(list.forms[0].via, "");
  ASSERT_THAT(list.forms[0].positions, SizeIs(1));
  EXPECT_THAT(list.forms[0].positions[0].regions,
              ElementsAre(Region{{0, 1, 2, 3}}, Region{{0, 1}}));
  ASSERT_THAT(list.refusals, SizeIs(3));
  EXPECT_EQ(list.refusals[0].choice, "via=bucket");
  EXPECT_EQ(list.refusals[1].choice, "via=split");
  EXPECT_EQ(list.refusals[2].choice, "fuse=1.2");
  FusionRules off;
  off.enabled = false;
  const FormList without = FusionRecipes().Forms(program, 16, off);
  EXPECT_THAT(without.forms[0].positions[0].regions, IsEmpty());
}

// An id means the same whatever the rules are: a region that is too deep for them has its recipe.
TEST(FusionRecipesTest, AnIdHasItsRecipe) {
  const FusionRecipes source;
  const Recipe bare = source.RecipeOf(Norm(), Id("fake/a")).value();
  EXPECT_THAT(bare.steps, SizeIs(2));
  const Recipe whole = source.RecipeOf(Norm(), Id("fake/a?fuse=1.2.3")).value();
  EXPECT_THAT(whole.steps, SizeIs(1));
}

TEST(FusionRecipesTest, AnIllegalRegionHasNone) {
  const FusionRecipes source;
  for (const auto& [id, reason] : std::vector<std::pair<std::string, std::string>>{
           {"fake/a?fuse=1.2", "%5 is rounded where the region would end"},
           {"fake/a?fuse=2", "the steps would wait for each other"},
           {"fake/a?fuse=9", "names no operation"},
           {"fake/a?via=join", "no form of a program is via=join"}}) {
    const Result<Recipe> recipe = source.RecipeOf(Norm(), Id(id));
    ASSERT_FALSE(recipe.has_value()) << id;
    EXPECT_EQ(recipe.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(recipe.error().ToText(), HasSubstr(reason)) << id;
  }
}

}  // namespace
}  // namespace cotune
