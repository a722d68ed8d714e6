// Where the recipes of programs come from.
#ifndef COTUNE_CORE_RECIPE_RECIPE_SOURCE_H_
#define COTUNE_CORE_RECIPE_RECIPE_SOURCE_H_

#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/problem/choice_id.h"
#include "core/problem/program.h"
#include "core/recipe/recipe.h"

namespace cotune {

// One recipe of a program, before it is known which choices run its steps.
struct Form {
  std::string via;  // the value of the key `via` in its ids; "": the program as it is
  Recipe recipe;
};

// Pure, and equal on all ranks. The job owns it and outlives every use. Any thread.
class RecipeSource {
 public:
  virtual ~RecipeSource() = default;

  // The forms of a program at R rows in a fixed order, the unfused one first.
  virtual std::vector<Form> Forms(const Program& program, uint64_t rows) const = 0;

  // The recipe that the host's keys of an id name (kHostKeys). kUnsupported: there is none, with
  // the reason.
  virtual Result<Recipe> RecipeOf(const ProgramGraph& graph, const ChoiceId& id) const = 0;
};

}  // namespace cotune

#endif  // COTUNE_CORE_RECIPE_RECIPE_SOURCE_H_
