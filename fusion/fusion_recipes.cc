#include "fusion/fusion_recipes.h"

#include <string>
#include <utility>

#include "core/recipe/recipe_id.h"
#include "fusion/rewrite.h"

namespace cotune {

FormList FusionRecipes::Forms(const Program& program, uint64_t rows,
                              const FusionRules& rules) const {
  FormList list{{FormWithoutRegions("", program.graph())}, {}};
  for (Form& form : Rewrites(program, rows, rules, list.refusals)) {
    list.forms.push_back(std::move(form));
  }
  return list;
}

Result<Recipe> FusionRecipes::RecipeOf(const ProgramGraph& graph, const ChoiceId& id) const {
  COTUNE_TRY(const std::string via, ViaOf(id));
  COTUNE_TRY(const Form form, FormVia(graph, via));
  return RecipeOfForm(form, id);
}

}  // namespace cotune
