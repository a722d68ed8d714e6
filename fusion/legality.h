// Judges which local operations may run in one step with a collective.
#ifndef COTUNE_FUSION_LEGALITY_H_
#define COTUNE_FUSION_LEGALITY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/problem/program_graph.h"
#include "core/problem/tuning_settings.h"
#include "core/recipe/input_map.h"
#include "core/recipe/make_recipe.h"
#include "core/recipe/recipe.h"
#include "fusion/node_links.h"
#include "fusion/roundings.h"
#include "fusion/subgraph_boundary.h"

namespace cotune {

// A region writes at most so many values to memory for each of its collectives.
inline constexpr size_t kRegionOutputsMax = 8;

// The number of operations on each side of a region's collective. For a bucket, each side is the
// largest over its collectives.
struct RegionDepth {
  int32_t before = 0;
  int32_t after = 0;
};

RegionDepth DepthOf(const ProgramGraph& graph, const NodeLinks& links, const Region& region);

// Judges regions of one graph; every reason is a text for people. It is made once for all regions
// of the graph, which outlives it. Immutable.
class Legality {
 public:
  explicit Legality(const ProgramGraph& graph);
  // The same for the graph of a form, which may read shares of the program's inputs. By
  // numerics=same a region may begin and end anywhere, because every value is rounded in every
  // recipe.
  Legality(const ProgramGraph& graph, const InputMap& inputs,
           NumericsRule numerics = NumericsRule::kAny);

  Legality(const Legality&) = delete;
  Legality& operator=(const Legality&) = delete;

  const ProgramGraph& graph() const { return graph_; }
  // Every collective of the graph runs by itself.
  const Recipe& unfused() const { return unfused_; }
  const NodeLinks& links() const { return links_; }

  // Why no region of the collective has this node, whichever other nodes the region has. A node
  // of a bucket is judged with the collective to which it belongs.
  std::optional<std::string> WhyNotNode(size_t collective, size_t node) const;
  // Why the region is no step by itself: the reasons that do not depend on the steps around it.
  std::optional<std::string> WhyNotStep(const Region& region) const;
  // The recipe in which the region is a backend step and the other collectives run by themselves.
  // kUnsupported: the region is illegal, with the reason as the error's `what`. Settings do not
  // matter, so that an id means the same under all of them.
  Result<Recipe> RecipeWith(const Region& region) const;
  // The same reason without the recipe.
  std::optional<std::string> WhyNotRegion(const Region& region) const;
  // Why a recipe of the graph cannot run, whose regions are steps: its bits differ from those of
  // the unfused recipe, because its regions cut other steps in two, or join them.
  std::optional<std::string> WhyNotRecipe(const Recipe& recipe) const;

  RegionDepth DepthOf(const Region& region) const {
    return cotune::DepthOf(graph_, links_, region);
  }

 private:
  bool IsBefore(size_t node, size_t collective) const { return links_.after(node)[collective]; }
  std::optional<std::string> WhyNotBefore(size_t collective, size_t node) const;
  std::optional<std::string> WhyNotConvex(const NodeSet& inside) const;
  std::optional<std::string> WhyNotBucket(const Region& region,
                                          const std::vector<size_t>& collectives) const;
  std::optional<std::string> WhyNotInPlace(const std::vector<size_t>& collectives,
                                           const NodeSet& inside) const;
  bool MayOverwriteWhatItReads(const std::vector<size_t>& collectives, size_t reader,
                               ValueIndex input) const;
  std::optional<std::string> WhyNotStored(const SubgraphBoundary& boundary) const;
  // The nodes that read an input, or a share of it.
  std::vector<size_t> ReadersOf(ValueIndex input) const;

  const ProgramGraph& graph_;
  const InputMap inputs_;
  const NodeLinks links_;
  const Recipe unfused_;
  const Roundings roundings_;
};

// The same by one call.
std::optional<std::string> WhyNotRegion(const ProgramGraph& graph, const Region& region);
// Why a region cannot grow by a node under these rules, whatever it absorbs afterwards. The region
// that it makes may still be illegal, if it must grow further: see WhyNotRegion.
std::optional<std::string> WhyNotAbsorb(const ProgramGraph& graph, const Region& region,
                                        size_t node, const FusionRules& rules);
// Why settings leave a region out.
std::optional<std::string> WhyLeftOut(const RegionDepth& depth, const FusionRules& rules);

}  // namespace cotune

#endif  // COTUNE_FUSION_LEGALITY_H_
