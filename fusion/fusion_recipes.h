// The source of the recipes of a job with fusion.
#ifndef COTUNE_FUSION_FUSION_RECIPES_H_
#define COTUNE_FUSION_FUSION_RECIPES_H_

#include <cstdint>

#include "core/base/status.h"
#include "core/problem/choice_id.h"
#include "core/problem/program.h"
#include "core/problem/program_graph.h"
#include "core/problem/tuning_settings.h"
#include "core/recipe/recipe.h"
#include "core/recipe/recipe_source.h"

namespace cotune {

// Immutable. The forms of a program are the program as it is, with the regions that legality.h
// allows by the numerics of the job, and those of rewrite.h, which do not depend on them. An id
// that names another region or form has no recipe. An id has the same steps by either rule, but
// numerics=any refuses more of them.
class FusionRecipes final : public RecipeSource {
 public:
  explicit FusionRecipes(NumericsRule numerics = NumericsRule::kAny) : numerics_(numerics) {}
  FormList Forms(const Program& program, uint64_t rows, const FusionRules& rules) const override;
  // The id's regions are all that its positions have.
  Result<Form> FormOf(const Program& program, uint64_t rows, const FusionRules& rules,
                      const ChoiceId& id) const override;
  // kUnsupported also if a region is illegal, or the regions are so together.
  Result<Recipe> RecipeOf(const ProgramGraph& graph, const ChoiceId& id) const override;

 private:
  const NumericsRule numerics_;
};

}  // namespace cotune

#endif  // COTUNE_FUSION_FUSION_RECIPES_H_
