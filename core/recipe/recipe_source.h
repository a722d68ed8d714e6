// The source of the recipes of programs.
#ifndef COTUNE_CORE_RECIPE_RECIPE_SOURCE_H_
#define COTUNE_CORE_RECIPE_RECIPE_SOURCE_H_

#include <cstddef>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/problem/choice_id.h"
#include "core/problem/program.h"
#include "core/problem/program_graph.h"
#include "core/problem/tuning_settings.h"
#include "core/recipe/input_map.h"
#include "core/recipe/make_recipe.h"
#include "core/recipe/recipe.h"

namespace cotune {

// A collective of a form, or a bucket, and the regions in which a backend may run it instead of by
// itself.
struct Position {
  std::vector<size_t>
      collectives;                // nodes in the graph of the form, ascending; of a bucket several
  std::vector<Region> regions{};  // in the order in which they are asked for, the best guess first

  bool is_bucket() const { return collectives.size() > 1; }
};

// One way to write a program, before it is known which choices run its steps.
struct Form {
  std::string via;  // the value of the key `via` in its ids; "": the program as it is
  ProgramGraph graph;
  std::vector<Position> positions;  // in the order of their first collectives
  InputMap inputs;                  // the operands that the graph reads

  // The buckets, as regions of the graph.
  std::vector<Region> Buckets() const;
};
// Every collective of the graph, and no region. The graph has the inputs of the program.
Form FormWithoutRegions(std::string via, const ProgramGraph& graph);

struct FormList {
  std::vector<Form> forms;  // the unfused one first
  // Forms and regions that the program cannot have, by the keys of their ids, with the reasons.
  std::vector<Refusal> refusals;
};

// Pure, and equal on all ranks. The job owns it and outlives every use. Any thread.
class RecipeSource {
 public:
  virtual ~RecipeSource() = default;

  // The forms of a program at R rows in a fixed order.
  virtual FormList Forms(const Program& program, uint64_t rows, const FusionRules& rules) const = 0;

  // The form that an id names, whose positions need no regions but those of the id. It is made at
  // the first call of a size, where Forms would take longer. kUnsupported: there is none at R rows,
  // or rules leave it or a region out, with the reason. This one looks for it among all forms.
  virtual Result<Form> FormOf(const Program& program, uint64_t rows, const FusionRules& rules,
                              const ChoiceId& id) const;

  // The recipe that the host's keys of an id name (kHostKeys), also one that rules leave out.
  // kUnsupported: there is none, with the reason.
  virtual Result<Recipe> RecipeOf(const ProgramGraph& graph, const ChoiceId& id) const = 0;
};

// The source of a job without fusion: no program has another form. Stateless.
class UnfusedRecipes final : public RecipeSource {
 public:
  FormList Forms(const Program& program, uint64_t rows, const FusionRules& rules) const override;
  Result<Recipe> RecipeOf(const ProgramGraph& graph, const ChoiceId& id) const override;
};

}  // namespace cotune

#endif  // COTUNE_CORE_RECIPE_RECIPE_SOURCE_H_
