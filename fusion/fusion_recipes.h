// The recipes of programs: unfused, with regions, and in other forms.
#ifndef COTUNE_FUSION_FUSION_RECIPES_H_
#define COTUNE_FUSION_FUSION_RECIPES_H_

#include <cstdint>

#include "core/recipe/recipe_source.h"

namespace cotune {

// Stateless; any thread.
class FusionRecipes final : public RecipeSource {
 public:
  FormList Forms(const Program& program, uint64_t rows, const FusionRules& rules) const override;
  Result<Recipe> RecipeOf(const ProgramGraph& graph, const ChoiceId& id) const override;
};

}  // namespace cotune

#endif  // COTUNE_FUSION_FUSION_RECIPES_H_
