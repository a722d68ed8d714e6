#include "fusion/fusion_recipes.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/recipe/make_recipe.h"
#include "core/recipe/recipe_id.h"
#include "fmt/format.h"
#include "fusion/enumerate.h"
#include "fusion/legality.h"
#include "fusion/node_links.h"
#include "fusion/rewrite.h"
#include "fusion/roundings.h"

namespace cotune {

FormList FusionRecipes::Forms(const Program& program, uint64_t rows,
                              const FusionRules& rules) const {
  FormList list{{FormWithoutRegions("", program.graph())}, {}};
  for (Form& form : Rewrites(program, rows, rules, list.refusals)) {
    list.forms.push_back(std::move(form));
  }
  const ProgramSize size{rows, program.group().world_size};
  for (Form& form : list.forms) AddRegions(form, size, rules, numerics_, list.refusals);
  return list;
}

Result<Form> FusionRecipes::FormOf(const Program& program, uint64_t rows, const FusionRules& rules,
                                   const ChoiceId& id) const {
  COTUNE_TRY(const std::string via, ViaOf(id));
  COTUNE_TRY(Form form, FormAt(program, rows, rules, via));
  const std::vector<ChoiceId> steps = id.StepsFor(form.positions.size());
  std::optional<NodeLinks> links;
  for (size_t i = 0; i < steps.size(); ++i) {
    COTUNE_TRY(Region region, RegionOfStep(form, i, steps[i]));
    if (region.nodes == form.positions[i].collectives) continue;
    if (!links) links.emplace(form.graph);
    if (auto reason = WhyLeftOut(DepthOf(form.graph, *links, region), rules)) {
      return Fail(ErrorCode::kUnsupported, *std::move(reason), steps[i].text());
    }
    form.positions[i].regions.push_back(std::move(region));
  }
  return form;
}

Result<Recipe> FusionRecipes::RecipeOf(const ProgramGraph& graph, const ChoiceId& id) const {
  COTUNE_TRY(const std::string via, ViaOf(id));
  COTUNE_TRY(const Form form, FormVia(graph, via));
  COTUNE_TRY(Recipe recipe, RecipeOfForm(form, id));
  if (!id.WithoutHostKey(kViaKey).has_host_keys()) return recipe;
  const Legality legality(recipe.graph, recipe.inputs, numerics_);
  for (const RecipeStep& step : recipe.steps) {
    if (step.is_part() || step.is_packed()) continue;
    if (const auto reason = legality.WhyNotStep({step.nodes})) {
      return Fail(ErrorCode::kUnsupported, *reason, id.text());
    }
  }
  if (form.Buckets().empty()) {
    if (const auto reason = legality.WhyNotRecipe(recipe)) {
      return Fail(ErrorCode::kUnsupported, *reason, id.text());
    }
    return recipe;
  }
  // The form has the bits of the program if it has no region (BucketForm).
  COTUNE_TRY(const Recipe without_regions, MakeRecipe(form.graph, form.Buckets()));
  if (const auto value = Roundings(without_regions, numerics_).FirstChanged(recipe)) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("%{} is rounded in one of both forms alone", *value), id.text());
  }
  return recipe;
}

}  // namespace cotune
