#include "core/choice/choice_caller.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/temporaries.h"
#include "core/recipe/make_recipe.h"
#include "core/recipe/recipe_source.h"
#include "core/testing/empty_plan.h"
#include "core/testing/parsed.h"
#include "core/testing/scripted_ranks.h"
#include "gtest/gtest.h"

namespace cotune {
namespace {

class EmptyGroup final : public BackendGroup {
 public:
  Result<std::unique_ptr<Plan>> Prepare(const Program&, const Problem&, const Choice&,
                                        int64_t) override {
    return std::make_unique<EmptyPlan>();
  }
  Status RegisterMemory(void*, uint64_t, int64_t) override { return {}; }
  void UnregisterMemory(void*) override {}
  Status Health() override { return {}; }
  void Abort() override {}
};

class EmptyBackend final : public Backend {
 public:
  const std::string& name() const override { return name_; }
  const std::string& version() const override { return name_; }
  ChoiceList ListChoices(const Program&, const Problem&) const override { return {}; }
  Result<std::unique_ptr<BackendGroup>> CreateGroup(const GroupParameters&) override {
    return std::make_unique<EmptyGroup>();
  }
  Result<std::unique_ptr<Plan>> PreparePart(const PartRequest&, int64_t) override {
    return std::make_unique<EmptyPlan>();
  }

 private:
  const std::string name_ = "empty";
};

// Counts the recipes that are asked for.
class CountingRecipes final : public RecipeSource {
 public:
  FormList Forms(const Program& program, uint64_t rows, const FusionRules& rules) const override {
    return unfused_.Forms(program, rows, rules);
  }
  Result<Recipe> RecipeOf(const ProgramGraph& graph, const ChoiceId& id) const override {
    ++asked;
    return unfused_.RecipeOf(graph, id);
  }

  mutable int asked = 0;

 private:
  const UnfusedRecipes unfused_;
};

class ChoiceCallerTest : public ::testing::Test {
 protected:
  std::unique_ptr<ChoiceCaller> Caller(std::optional<Recipe> recipe) {
    const ProgramSupport support{
        .part_backend = &backend_, .temporaries = &temporaries_, .recipes = &recipes_};
    return std::make_unique<ChoiceCaller>(program_, program_.ProblemAtRows(4, 0),
                                          Choice{.id = ChoiceId::Parse("empty/a").value()},
                                          std::vector{&member_}, support, std::move(recipe));
  }

  EmptyBackend backend_;
  BackendMember member_{&backend_, std::make_unique<EmptyGroup>()};
  std::unique_ptr<Device> device_ = MakeDeviceForTest();
  Temporaries temporaries_{*device_};
  CountingRecipes recipes_;
  const Program program_ =
      Program::Bind(Graph("%x = input f32 [R, 5]\n%s = all_reduce sum %x\n%y = relu %s\n"
                          "return %y\n"),
                    {MemoryKind::kHost, 2, 2})
          .value();
};

TEST_F(ChoiceCallerTest, TheFirstPlanIsMadeOfTheRecipeThatIsThere) {
  const auto caller = Caller(UnfusedRecipe(program_.graph()));
  EXPECT_TRUE(caller->Precompile(0).has_value());
  EXPECT_EQ(recipes_.asked, 0);
}

TEST_F(ChoiceCallerTest, ALaterPlanAsksTheSource) {
  const auto caller = Caller(UnfusedRecipe(program_.graph()));
  EXPECT_TRUE(caller->Precompile(0).has_value());
  caller->Reset();
  EXPECT_TRUE(caller->Precompile(0).has_value());
  EXPECT_EQ(recipes_.asked, 1);
}

TEST_F(ChoiceCallerTest, WithoutARecipeTheFirstPlanAsksTheSource) {
  const auto caller = Caller(std::nullopt);
  EXPECT_TRUE(caller->Precompile(0).has_value());
  EXPECT_EQ(recipes_.asked, 1);
}

}  // namespace
}  // namespace cotune
