#include "core/recipe/recipe_id.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "core/testing/parsed.h"
#include "core/testing/twin_recipes.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Two layers with equal surroundings: a cast before the collective, an addition and a relu after.
ProgramGraph TwoLayers() {
  return Graph(
      "%x = input bf16 [R, 8]\n%r = input f32 [R, 8]\n"
      "%a = cast %x, to=f32\n%b = all_reduce sum %a\n%c = add %b, %r\n%d = relu %c\n"
      "%e = cast %d, to=bf16\n%f = cast %e, to=f32\n%g = all_reduce sum %f\n%h = add %g, %r\n"
      "%i = relu %h\nreturn %i, %d\n");
}

TEST(RecipeIdTest, EqualSurroundingsHaveEqualKeys) {
  const ProgramGraph graph = TwoLayers();
  EXPECT_EQ(FuseText(graph, {{0, 1, 2, 3}}), "-1.1.2");
  EXPECT_EQ(FuseText(graph, {{5, 6, 7, 8}}), "-1.1.2");
  EXPECT_EQ(FuseText(graph, {{1}}), "");
}

TEST(RecipeIdTest, AKeyNamesTheOperationsOfItsStep) {
  const ProgramGraph graph = TwoLayers();
  const Recipe both = RecipeByFuseKeys(graph, Id("fake/a?fuse=-1.1.2")).value();
  ASSERT_THAT(both.steps, SizeIs(3));  // %e, between the layers, is a part
  EXPECT_THAT(both.steps[0].nodes, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(both.steps[1].nodes, ElementsAre(4));
  EXPECT_TRUE(both.steps[1].is_part());
  EXPECT_THAT(both.steps[2].nodes, ElementsAre(5, 6, 7, 8));
  EXPECT_THAT(both.backend_steps(), ElementsAre(0, 2));
  // %x, %r and %d; the sum inside of the step has no place in memory.
  EXPECT_THAT(both.steps[0].inputs, ElementsAre(0, 1));
  EXPECT_THAT(both.steps[0].outputs, ElementsAre(3));
  ASSERT_THAT(both.temporaries, SizeIs(1));
  EXPECT_EQ(both.temporaries[0].value, 6);

  const Recipe second = RecipeByFuseKeys(graph, Id("fake/b+fake/a?fuse=1")).value();
  std::vector<std::vector<size_t>> nodes;
  for (const RecipeStep& step : second.steps) nodes.push_back(step.nodes);
  EXPECT_THAT(nodes, ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2, 3, 4, 5),
                                 ElementsAre(6, 7), ElementsAre(8)));
}

TEST(RecipeIdTest, WrongKeysAreRefused) {
  const ProgramGraph graph = TwoLayers();
  for (const auto& [id, what] : std::vector<std::pair<std::string, std::string>>{
           {"fake/a+fake/a+fake/a", "choices of 3 steps, and the program has 2"},
           {"fake/a?fuse=9", "names no operation"},
           {"fake/a?fuse=-2", "names no operation"},
           {"fake/a?fuse=5", "names no operation"},  // a collective
           {"fake/a?fuse=0", "names no operation"},
           {"fake/a?fuse=1.", "names no operation"},
           {"fake/a?fuse=x", "names no operation"},
           {"fake/a?fuse=99999999999999999999", "names no operation"},
           {"fake/a?fuse=2.1", "ascending order"},
           {"fake/a?fuse=1.1", "ascending order"},
           {"fake/a?fuse=01", "ascending order"},
           {"fake/a?fuse=4+fake/a?fuse=-1", "the same operation"}}) {
    const Result<Recipe> recipe = RecipeByFuseKeys(graph, Id(id));
    ASSERT_FALSE(recipe.has_value()) << id;
    EXPECT_EQ(recipe.error().code, ErrorCode::kUnsupported);
    EXPECT_THAT(recipe.error().ToText(), HasSubstr(what)) << id;
  }
}

// A region has as many values as a program may have.
TEST(RecipeIdTest, AStepWithTooManyValuesIsRefused) {
  std::string text = "%x = input f32 [R, 8]\n%s = all_reduce sum %x\n";
  std::string key = "fuse=";
  for (int i = 1; i <= 17; ++i) {
    text += "%v" + std::to_string(i) + " = mul %s, " + std::to_string(i) + "\n";
    key += (i == 1 ? "" : ".") + std::to_string(i);
  }
  text += "%w1 = relu %v1\n";
  for (int i = 2; i <= 17; ++i) {
    const std::string n = std::to_string(i);
    text += "%w" + n + " = add %w" + std::to_string(i - 1) + ", %v" + n + "\n";
  }
  const Result<Recipe> recipe =
      RecipeByFuseKeys(Graph(text + "return %w17\n"), Id("fake/a?" + key));
  ASSERT_FALSE(recipe.has_value());
  EXPECT_EQ(recipe.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(recipe.error().ToText(), HasSubstr("17 outputs"));
}

TEST(RecipeIdTest, ARegionHasOneCollective) {
  const ProgramGraph graph = TwoLayers();
  for (const Region& region : {Region{{2, 3}}, Region{{1, 2, 6}}}) {
    EXPECT_FALSE(MakeRecipe(graph, {&region, 1}).has_value());
  }
}

// The relu between the two operations that the step absorbs would have to run in the middle of it.
TEST(RecipeIdTest, AStepThatWouldWaitForAnotherWhichWaitsForItIsRefused) {
  const ProgramGraph graph = Graph(
      "%x = input f32 [R, 8]\n%a = all_reduce sum %x\n%b = neg %a\n%c = relu %b\n"
      "%d = add %a, %c\nreturn %d, %b\n");
  EXPECT_TRUE(RecipeByFuseKeys(graph, Id("fake/a?fuse=1")).has_value());
  EXPECT_TRUE(RecipeByFuseKeys(graph, Id("fake/a?fuse=1.2.3")).has_value());
  const Result<Recipe> recipe = RecipeByFuseKeys(graph, Id("fake/a?fuse=1.3"));
  ASSERT_FALSE(recipe.has_value());
  EXPECT_THAT(recipe.error().ToText(), HasSubstr("wait for each other"));
}

// The operation that follows the first collective reads the value of the second one.
TEST(RecipeIdTest, AStepRunsBehindALaterCollectiveThatItReads) {
  const ProgramGraph graph = Graph(
      "%x = input f32 [R, 8]\n%y = input f32 [R, 8]\n%a = all_reduce sum %x\n"
      "%b = all_reduce sum %y\n%c = add %a, %b\nreturn %c\n");
  const Recipe recipe = RecipeByFuseKeys(graph, Id("fake/a?fuse=2+fake/a")).value();
  ASSERT_THAT(recipe.steps, SizeIs(2));
  EXPECT_THAT(recipe.steps[0].nodes, ElementsAre(1));
  EXPECT_THAT(recipe.steps[1].nodes, ElementsAre(0, 2));
  EXPECT_THAT(recipe.backend_steps(), ElementsAre(1, 0));  // in the order of the id
  EXPECT_THAT(recipe.temporaries, SizeIs(1));
}

TEST(RecipeIdTest, ARecipeInWordsHasTheOperationsAndChoicesOfItsSteps) {
  const TwinRecipes source(/*with_regions=*/true);
  const ProgramGraph graph = Graph(
      "%x = input f32 [R, 64]\n%a = all_reduce sum %x\n%b = all_reduce sum %x\n%y = relu %a\n"
      "%z = neg %b\nreturn %y, %z\n");
  const auto text = [&](const std::string& id) {
    const RecipeInWords words = InWords(source, graph, Id(id)).value();
    std::string all = words.via + ":";
    for (const StepInWords& step : words.steps) {
      for (const std::string& operation : step.operations) all += " " + operation;
      all += step.choice ? " by " + step.choice->text() + ";" : ";";
    }
    return all;
  };
  EXPECT_EQ(text("host/one"), ": all_reduce by host/one; all_reduce by host/one; relu neg;");
  EXPECT_EQ(text("host/one?fuse=2+host/two?k=1"),
            ": all_reduce relu by host/one; all_reduce by host/two?k=1; neg;");
  EXPECT_EQ(text("host/one?via=once"), "once: all_reduce by host/one; relu neg;");
  EXPECT_FALSE(InWords(source, graph, Id("host/one?via=twice")).has_value());
  EXPECT_FALSE(InWords(source, graph, Id("host/one+host/one?via=once")).has_value());
  EXPECT_THAT(InWords(source, graph, Id("host/one?via=once")).value().steps, SizeIs(2));
}

}  // namespace
}  // namespace cotune
