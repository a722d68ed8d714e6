#include "core/recipe/recipe_source.h"

#include <string_view>
#include <utility>

#include "core/recipe/recipe_id.h"
#include "fmt/format.h"

namespace cotune {

Form FormWithoutRegions(std::string via, const ProgramGraph& graph) {
  Form form{std::move(via), graph, {}, InputMap::OfProgram(graph)};
  for (const size_t collective : graph.collectives()) form.positions.push_back({{collective}});
  return form;
}

std::vector<Region> Form::Buckets() const {
  std::vector<Region> buckets;
  for (const Position& position : positions) {
    if (position.is_bucket()) buckets.push_back({position.collectives});
  }
  return buckets;
}

Result<Form> RecipeSource::FormOf(const Program& program, uint64_t rows, const FusionRules& rules,
                                  const ChoiceId& id) const {
  COTUNE_TRY(const std::string via, ViaOf(id));
  FormList list = Forms(program, rows, rules);
  for (Form& form : list.forms) {
    if (form.via == via) return std::move(form);
  }
  return Fail(ErrorCode::kUnsupported, fmt::format("the program has no form {}={}", kViaKey, via),
              id.text());
}

FormList UnfusedRecipes::Forms(const Program& program, uint64_t /*rows*/,
                               const FusionRules& /*rules*/) const {
  return {{FormWithoutRegions("", program.graph())}, {}};
}

Result<Recipe> UnfusedRecipes::RecipeOf(const ProgramGraph& graph, const ChoiceId& id) const {
  for (const ChoiceId& step : id.steps()) {
    for (const std::string_view key : kHostKeys) {
      const std::string value = step.HostKey(key);
      if (value.empty()) continue;
      return Fail(ErrorCode::kUnsupported, fmt::format("no recipe is known for {}={}", key, value),
                  id.text());
    }
  }
  return UnfusedRecipe(graph);
}

}  // namespace cotune
