// Cuts a program into the steps of a recipe.
#ifndef COTUNE_CORE_RECIPE_MAKE_RECIPE_H_
#define COTUNE_CORE_RECIPE_MAKE_RECIPE_H_

#include <cstddef>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/problem/program_graph.h"
#include "core/recipe/input_map.h"
#include "core/recipe/recipe.h"

namespace cotune {

// Nodes of a graph that one backend step runs together, ascending: a collective with the local
// operations around it, or a bucket of 2 to 16 collectives alone.
struct Region {
  std::vector<size_t> nodes;
  bool operator==(const Region&) const = default;
};
// The first collective of a region.
size_t CollectiveOf(const ProgramGraph& graph, const Region& region);

// Each region is one step, and so is each collective that stands in none. Local operations between
// two of these are one part, because a generator of code makes one loop of them; more operands than
// a program may have make several parts of them. kUnsupported: two regions overlap, the steps would
// wait for each other, or the collectives of a bucket cannot be packed. They can if they are
// all_reduces or broadcasts that differ in their operands alone, and if all operands and values are
// different temporaries. An output that overwrites an input comes after all steps that read the
// input or a share of it.
Result<Recipe> MakeRecipe(const ProgramGraph& graph, const InputMap& inputs,
                          std::span<const Region> regions);
// The same for a graph with the inputs of the program.
Result<Recipe> MakeRecipe(const ProgramGraph& graph, std::span<const Region> regions);

// Without regions: every collective runs by itself.
Recipe UnfusedRecipe(const ProgramGraph& graph);
Recipe UnfusedRecipe(const ProgramGraph& graph, const InputMap& inputs);

}  // namespace cotune

#endif  // COTUNE_CORE_RECIPE_MAKE_RECIPE_H_
