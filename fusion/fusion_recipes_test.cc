#include "fusion/fusion_recipes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/recipe/recipe_id.h"
#include "core/testing/parsed.h"
#include "core/testing/random_program.h"
#include "fmt/format.h"

namespace cotune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

ProgramGraph Norm() {
  return Graph(
      "%x = input bf16 [R, 8]\n%r = input bf16 [R, 8]\n%g = input bf16 [1, 8]\n"
      "%s = all_reduce sum %x\n%t = add %s, %r\n%y = rms_norm %t, %g\n%z = mul %y, 3\n"
      "return %z, %t into %r\n");
}

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

// The id of a form with one region, which is that of the position `at`.
ChoiceId IdOf(const Form& form, size_t at, const Region& region) {
  std::string text;
  for (size_t i = 0; i < form.positions.size(); ++i) {
    std::string keys;
    if (i == at) keys = fmt::format("{}={}", kFuseKey, FuseText(form.graph, region));
    if (!form.via.empty()) keys += fmt::format("{}via={}", keys.empty() ? "" : "&", form.via);
    text += fmt::format("{}fake/a{}{}", i == 0 ? "" : "+", keys.empty() ? "" : "?", keys);
  }
  return Id(text);
}

// The form of an id is the listed one with the id's region alone, and rules leave out the same.
TEST(FusionRecipesTest, AnIdHasTheFormThatIsListed) {
  const FusionRecipes source;
  FusionRules bare_only;
  bare_only.enabled = false;
  FusionRules shallow;
  shallow.max_depth = 1;
  size_t regions = 0;
  size_t left_out = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = seed % 4 == 0 ? RandomBucketProgram(seed, 3) : RandomProgram(seed, 3);
    const Program program = Program::Bind(Graph(text), {MemoryKind::kHost, 3, 3}).value();
    const FormList all = source.Forms(program, 6, {});
    const FormList few = source.Forms(program, 6, shallow);
    for (size_t which = 0; which < all.forms.size(); ++which) {
      const Form& form = all.forms[which];
      for (size_t at = 0; at < form.positions.size(); ++at) {
        for (const Region& region : form.positions[at].regions) {
          const ChoiceId id = IdOf(form, at, region);
          SCOPED_TRACE(fmt::format("seed {}: {}", seed, id.text()));
          ++regions;
          const Form found = source.FormOf(program, 6, {}, id).value();
          EXPECT_EQ(found.via, form.via);
          EXPECT_EQ(found.graph, form.graph);
          ASSERT_EQ(found.positions.size(), form.positions.size());
          for (size_t i = 0; i < form.positions.size(); ++i) {
            EXPECT_EQ(found.positions[i].collectives, form.positions[i].collectives);
          }
          EXPECT_THAT(found.positions[at].regions, ElementsAre(region));
          EXPECT_FALSE(source.FormOf(program, 6, bare_only, id).has_value());
          const std::vector<Region>& allowed = few.forms[which].positions[at].regions;
          const bool is_allowed =
              std::find(allowed.begin(), allowed.end(), region) != allowed.end();
          left_out += is_allowed ? 0 : 1;
          EXPECT_EQ(source.FormOf(program, 6, shallow, id).has_value(), is_allowed);
        }
      }
    }
  }
  EXPECT_GT(regions, 100);
  EXPECT_GT(left_out, 20);
}

// An id means the same whatever the rules are: a region that is too deep for them has its recipe.
TEST(FusionRecipesTest, AnIdHasItsRecipe) {
  const FusionRecipes source;
  const Recipe bare = source.RecipeOf(Norm(), Id("fake/a")).value();
  EXPECT_THAT(bare.steps, SizeIs(2));
  const Recipe whole = source.RecipeOf(Norm(), Id("fake/a?fuse=1.2.3")).value();
  EXPECT_THAT(whole.steps, SizeIs(1));
}

// numerics=same takes more regions, and changes the steps of none.
TEST(FusionRecipesTest, ByTheSameNumericsARegionMayEndAnywhere) {
  const FusionRecipes by_any(NumericsRule::kAny);
  const FusionRecipes by_same(NumericsRule::kSame);
  const Program program = Program::Bind(Norm(), {MemoryKind::kHost, 4, 4}).value();
  const FormList list = by_same.Forms(program, 16, {});
  EXPECT_THAT(list.forms.at(0).positions.at(0).regions,
              UnorderedElementsAre(Region{{0, 1, 2, 3}}, Region{{0, 1, 2}}, Region{{0, 1}}));
  EXPECT_FALSE(by_any.RecipeOf(Norm(), Id("fake/a?fuse=1.2")).has_value());
  EXPECT_THAT(by_same.RecipeOf(Norm(), Id("fake/a?fuse=1.2")).value().steps, SizeIs(2));
  for (const char* const id : {"fake/a", "fake/a?fuse=1", "fake/a?fuse=1.2.3"}) {
    const Recipe any = by_any.RecipeOf(Norm(), Id(id)).value();
    const Recipe same = by_same.RecipeOf(Norm(), Id(id)).value();
    ASSERT_EQ(any.steps.size(), same.steps.size()) << id;
    for (size_t i = 0; i < any.steps.size(); ++i) {
      EXPECT_EQ(any.steps[i].nodes, same.steps[i].nodes) << id;
    }
  }
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
