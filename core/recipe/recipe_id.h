// Reads the recipe of a choice from its id: the choice of each backend step, and the operations
// that run in it.
#ifndef COTUNE_CORE_RECIPE_RECIPE_ID_H_
#define COTUNE_CORE_RECIPE_RECIPE_ID_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/problem/choice_id.h"
#include "core/problem/program_graph.h"
#include "core/recipe/make_recipe.h"
#include "core/recipe/recipe.h"
#include "core/recipe/recipe_source.h"

namespace cotune {

inline constexpr std::string_view kFuseKey = "fuse";
inline constexpr std::string_view kViaKey = "via";

// The form that an id names; "": the program as it is. kUnsupported: its steps differ.
Result<std::string> ViaOf(const ChoiceId& id);

// The value of the key `fuse` for a region: its local operations as distances from their collective
// in the order of the graph, "-1.1.2" for one before it and two after it. Collectives with the same
// surroundings have the same text. A bucket has each distance once: "-1.1" for one operation before
// and one after each of its collectives.
std::string FuseText(const ProgramGraph& graph, const Region& region);
// A region in a text for people: `key`, "fuse=1.2" for example, with its collective: "fuse=1.2 of
// %3".
std::string RegionName(const ProgramGraph& graph, size_t collective, const std::string& key);

// The region of a form's position that the key `fuse` of a step names; of a step without it, the
// collectives of the position alone. kUnsupported: the key names no operation.
Result<Region> RegionOfStep(const Form& form, size_t position, const ChoiceId& step);

// The recipe of a graph by the `fuse` keys of an id, whatever its form is. kUnsupported: the id has
// another number of steps, a key names no operation, or the steps would wait for each other.
Result<Recipe> RecipeByFuseKeys(const ProgramGraph& graph, const ChoiceId& id);
// The same for a form, whose buckets are steps. The key `via` is not looked at.
Result<Recipe> RecipeOfForm(const Form& form, const ChoiceId& id);

// The choices of the backend steps of a recipe, in their order, with the host's keys. kUnsupported:
// the id has another number of steps.
Result<std::vector<ChoiceId>> ChoicesOfSteps(const Recipe& recipe, const ChoiceId& id);

// The choices of the collectives of a program, in order, where each of them runs by itself; empty
// for an id of another form, or of another program.
std::vector<ChoiceId> ChoicesOfCollectives(const ProgramGraph& graph, const ChoiceId& id);

// A program as a choice runs it, for people and for JSON.
struct StepInWords {
  std::vector<std::string> operations;  // in the order of the graph; a cast to its dtype is "copy"
  std::optional<ChoiceId> choice;       // nothing: a part
  bool is_bucket = false;               // the operations run as one collective
};
struct RecipeInWords {
  std::string via;  // "": the program as it is
  std::vector<StepInWords> steps;
};
// kUnsupported: as RecipeSource::RecipeOf.
Result<RecipeInWords> InWords(const RecipeSource& source, const ProgramGraph& graph,
                              const ChoiceId& id);

}  // namespace cotune

#endif  // COTUNE_CORE_RECIPE_RECIPE_ID_H_
