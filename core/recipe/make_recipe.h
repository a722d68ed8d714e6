// Cuts a program into the steps of a recipe.
#ifndef COTUNE_CORE_RECIPE_MAKE_RECIPE_H_
#define COTUNE_CORE_RECIPE_MAKE_RECIPE_H_

#include <cstddef>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/problem/program_graph.h"
#include "core/recipe/recipe.h"

namespace cotune {

// Nodes of a graph that one backend step runs together: ascending, with just one collective.
struct Region {
  std::vector<size_t> nodes;
  bool operator==(const Region&) const = default;
};
size_t CollectiveOf(const ProgramGraph& graph, const Region& region);

// Each region is one step, and so is each collective that stands in none. Local operations between
// two of these are one part, because a generator of code makes one loop of them. kUnsupported: two
// regions overlap, one has an operation that reads an input with "nofuse", or the steps would wait
// for each other.
Result<Recipe> MakeRecipe(const ProgramGraph& graph, std::span<const Region> regions);

// Without regions: every collective runs by itself.
Recipe UnfusedRecipe(const ProgramGraph& graph);

}  // namespace cotune

#endif  // COTUNE_CORE_RECIPE_MAKE_RECIPE_H_
