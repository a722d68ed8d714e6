// A second form of programs, for tests of what the recipes of a program go through.
#ifndef COTUNE_CORE_TESTING_TWIN_RECIPES_H_
#define COTUNE_CORE_TESTING_TWIN_RECIPES_H_

#include <cstdint>

#include "core/recipe/recipe_source.h"

namespace cotune {

// Both all_reduces have the same operand, so that one of them is enough.
inline constexpr char kTwins[] =
    "%x = input f32 [R, 64]\n%a = all_reduce sum %x\n%b = all_reduce sum %x\n%y = relu %a\n"
    "%z = neg %b\nreturn %y, %z\n";

// Adds the form "once" to programs in which two collectives of one kind have the same operand: the
// second one is left out, and its readers read the value of the first. With regions, each
// collective may absorb the one operation that reads its value, if that reads nothing else.
class TwinRecipes final : public RecipeSource {
 public:
  explicit TwinRecipes(bool with_regions = false) : with_regions_(with_regions) {}
  FormList Forms(const Program& program, uint64_t rows, const FusionRules& rules) const override;
  Result<Recipe> RecipeOf(const ProgramGraph& graph, const ChoiceId& id) const override;

 private:
  const bool with_regions_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_TESTING_TWIN_RECIPES_H_
