// Cuts a program into the steps of a recipe.
#ifndef COTUNE_CORE_RECIPE_MAKE_RECIPE_H_
#define COTUNE_CORE_RECIPE_MAKE_RECIPE_H_

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "core/base/status.h"
#include "core/problem/program_graph.h"
#include "core/recipe/input_map.h"
#include "core/recipe/recipe.h"

namespace cotune {

// Nodes of a graph that one backend step runs together, ascending: a collective, or a bucket of 2
// to 16 collectives, alone or with the local operations around it.
struct Region {
  std::vector<size_t> nodes;
  bool operator==(const Region&) const = default;
};
// The first collective of a region.
size_t CollectiveOf(const ProgramGraph& graph, const Region& region);
// All collectives of a region, ascending.
std::vector<size_t> CollectivesOf(const ProgramGraph& graph, const Region& region);
// By node: the only one of these collectives that the node is, that its value leads to or that it
// follows from; nothing if there are several or none.
std::vector<std::optional<size_t>> OwnCollectives(const ProgramGraph& graph,
                                                  const std::vector<size_t>& collectives);

// Each region is one step, and so is each collective that stands in none. Local operations between
// two of these are one part, because a generator of code makes one loop of them; more operands than
// a program may have make several parts of them. kUnsupported: two regions overlap, the steps would
// wait for each other, or the collectives of a bucket cannot run as one. They can if they are
// all_reduces or broadcasts that differ in their operands alone; without local operations all
// operands and values have to be different temporaries, and with them each operation has to belong
// to one of the collectives. An output that overwrites an input comes after all steps that read the
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
