#include "fusion/fusion_recipes.h"

#include <string>
#include <utility>

#include "core/recipe/recipe_id.h"
#include "fmt/format.h"
#include "fusion/enumerate.h"
#include "fusion/legality.h"

namespace cotune {
namespace {

// The graph of the form that an id names.
Result<ProgramGraph> GraphOf(const ProgramGraph& graph, const ChoiceId& id) {
  COTUNE_TRY(const std::string via, ViaOf(id));
  if (via.empty()) return graph;
  // Rewritten forms are found here.
  return Fail(ErrorCode::kUnsupported, fmt::format("no recipe is known for {}={}", kViaKey, via),
              id.text());
}

}  // namespace

FormList FusionRecipes::Forms(const Program& program, uint64_t rows,
                              const FusionRules& rules) const {
  FormList list{{FormWithoutRegions("", program.graph())}, {}};
  // Rewritten forms are appended here.
  const ProgramSize size{rows, program.group().world_size};
  for (Form& form : list.forms) AddRegions(form, size, rules, list.refusals);
  return list;
}

Result<Recipe> FusionRecipes::RecipeOf(const ProgramGraph& graph, const ChoiceId& id) const {
  COTUNE_TRY(const ProgramGraph of_form, GraphOf(graph, id));
  COTUNE_TRY(Recipe recipe, RecipeByFuseKeys(of_form, id));
  if (!id.WithoutHostKey(kViaKey).has_host_keys()) return recipe;
  const Legality legality(recipe.graph);
  for (const RecipeStep& step : recipe.steps) {
    if (step.is_part()) continue;
    if (const auto reason = legality.WhyNotStep({step.nodes})) {
      return Fail(ErrorCode::kUnsupported, *reason, id.text());
    }
  }
  if (const auto reason = legality.WhyNotRecipe(recipe)) {
    return Fail(ErrorCode::kUnsupported, *reason, id.text());
  }
  return recipe;
}

}  // namespace cotune
