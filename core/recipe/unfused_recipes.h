// The recipes that run every collective by itself.
#ifndef COTUNE_CORE_RECIPE_UNFUSED_RECIPES_H_
#define COTUNE_CORE_RECIPE_UNFUSED_RECIPES_H_

#include <vector>

#include "core/recipe/recipe_source.h"

namespace cotune {

// Each collective by itself. Local operations between two collectives are one part, because a
// generator of code makes one loop of them: unfused means "not inside of the collective".
Recipe UnfusedRecipe(const ProgramGraph& graph);

// The source of a job without fusion. Stateless.
class UnfusedRecipes final : public RecipeSource {
 public:
  std::vector<Form> Forms(const Program& program, uint64_t rows) const override;
  Result<Recipe> RecipeOf(const ProgramGraph& graph, const ChoiceId& id) const override;
};

}  // namespace cotune

#endif  // COTUNE_CORE_RECIPE_UNFUSED_RECIPES_H_
