#include "fusion/enumerate.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

#include "core/base/check.h"
#include "core/recipe/make_recipe.h"
#include "core/recipe/recipe_id.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {
namespace {

// Growth goes at least so far on a side, so that a region which max_fusion_depth leaves out is
// named. The default of that setting is 4.
constexpr int32_t kDepthGrownMin = 5;
// It goes no further, whatever the setting is, because each prefix of a side is judged with each of
// the other side.
constexpr int32_t kDepthGrownMax = 16;

// The sides of a collective grow one operation at a time.
class Growth {
 public:
  Growth(const Legality& legality, size_t collective)
      : graph_(legality.graph()),
        links_(legality.links()),
        legality_(legality),
        collective_(collective) {}

  struct Refused {
    std::vector<size_t> nodes;  // what the side had absorbed, and the operation that is refused
    std::string reason;
  };
  // The operations of a side in the order in which they join, `depth_max` at most.
  std::vector<size_t> Grow(bool is_before, int32_t depth_max) {
    std::map<size_t, int> levels{{collective_, 0}};  // by node of the region
    NodeSet refused_nodes;
    std::vector<size_t> grown;
    while (static_cast<int32_t>(grown.size()) < depth_max) {
      const std::optional<size_t> next = Next(is_before, levels, refused_nodes);
      if (!next) break;
      if (auto reason = legality_.WhyNotNode(collective_, *next)) {
        refused_nodes.set(*next);
        std::vector<size_t> nodes = grown;
        nodes.push_back(*next);
        refused_.push_back({std::move(nodes), *std::move(reason)});
        continue;
      }
      levels[*next] = *LevelOf(*next, is_before, levels);
      grown.push_back(*next);
    }
    return grown;
  }
  // The operations that both calls of Grow refused.
  const std::vector<Refused>& refused() const { return refused_; }

 private:
  // The neighbours of a node toward the collective, which the growth reaches before it.
  std::vector<size_t> Nearer(size_t node, bool is_before) const {
    if (is_before) return links_.readers(graph_.value_of_node(node));
    std::vector<size_t> nearer;
    for (const ValueIndex value : links_.operands(node)) {
      if (graph_.is_input(value)) continue;
      const size_t source = NodeOf(graph_, value);
      if (source == collective_ || links_.after(collective_)[source]) nearer.push_back(source);
    }
    return nearer;
  }
  // The distance of a node from the collective; nothing if a node between them is missing. Before
  // the collective one reader in the region is enough, so that a value with a second reader is
  // reached, and refused for it.
  std::optional<int> LevelOf(size_t node, bool is_before,
                             const std::map<size_t, int>& levels) const {
    int level = 0;
    for (const size_t nearer : Nearer(node, is_before)) {
      const auto known = levels.find(nearer);
      if (known != levels.end()) {
        level = std::max(level, known->second + 1);
      } else if (!is_before) {
        return std::nullopt;
      }
    }
    return level > 0 ? std::optional(level) : std::nullopt;
  }
  // The node that joins or is refused next.
  std::optional<size_t> Next(bool is_before, const std::map<size_t, int>& levels,
                             const NodeSet& refused) const {
    std::optional<size_t> next;
    int level_of_next = 0;
    for (size_t node = 0; node < graph_.nodes().size(); ++node) {
      if (levels.contains(node) || refused[node]) continue;
      if (is_before ? !links_.after(node)[collective_] : !links_.after(collective_)[node]) continue;
      const std::optional<int> level = LevelOf(node, is_before, levels);
      if (!level || (next && *level >= level_of_next)) continue;
      next = node;
      level_of_next = *level;
    }
    return next;
  }

  const ProgramGraph& graph_;
  const NodeLinks& links_;
  const Legality& legality_;
  const size_t collective_;
  std::vector<Refused> refused_;
};

// The key `fuse` for operations around a collective. One of them may be another collective, which
// is refused for that.
std::string KeyOf(size_t collective, const std::vector<size_t>& nodes) {
  std::set<std::ptrdiff_t> distances;
  for (const size_t node : nodes) {
    distances.insert(static_cast<std::ptrdiff_t>(node) - static_cast<std::ptrdiff_t>(collective));
  }
  return fmt::format("{}={}", kFuseKey, fmt::join(distances, "."));
}

// Collects refusals, each reason once.
class RefusalList {
 public:
  explicit RefusalList(std::vector<Refusal>& refusals) : refusals_(refusals) {}
  void Add(const std::string& choice, std::string reason) {
    const bool is_known = std::find(reasons_.begin(), reasons_.end(), reason) != reasons_.end();
    if (is_known) return;
    reasons_.push_back(reason);
    refusals_.push_back({choice, std::move(reason)});
  }

 private:
  std::vector<Refusal>& refusals_;
  std::vector<std::string> reasons_;
};

struct Candidate {
  Region region;
  std::string key;
  double saved = 0;  // picoseconds
};

uint64_t BytesBetween(const Recipe& recipe, const ProgramSize& size) {
  return LayOut(recipe, size.world_size, size.rows).bytes;
}

// The operations that one collective of a position can absorb, in the order in which they join.
struct Sides {
  size_t collective = 0;
  std::vector<size_t> before;
  std::vector<size_t> after;
};

// The sides of the collectives of a position. An operation that belongs to no collective of a
// bucket alone ends the side that it would join.
std::vector<Sides> GrowSides(const Legality& legality, const std::vector<size_t>& collectives,
                             int32_t depth_max, RefusalList& refusals) {
  const ProgramGraph& graph = legality.graph();
  const std::vector<std::optional<size_t>> owners = OwnCollectives(graph, collectives);
  std::vector<Sides> all;
  for (const size_t collective : collectives) {
    Growth growth(legality, collective);
    Sides sides{collective, growth.Grow(true, depth_max), growth.Grow(false, depth_max)};
    for (const Growth::Refused& refused : growth.refused()) {
      refusals.Add(KeyOf(collective, refused.nodes), refused.reason);
    }
    for (std::vector<size_t>* side : {&sides.before, &sides.after}) {
      const auto shared = std::find_if(side->begin(), side->end(),
                                       [&](size_t node) { return owners[node] != collective; });
      if (shared == side->end()) continue;
      refusals.Add(KeyOf(collective, {side->begin(), shared + 1}),
                   fmt::format("%{} belongs to no collective of the bucket alone",
                               graph.value_of_node(*shared)));
      side->erase(shared, side->end());
    }
    all.push_back(std::move(sides));
  }
  return all;
}

// The region in which each collective has absorbed so many operations of its sides, or all.
Region RegionOf(const std::vector<Sides>& all, size_t before, size_t after) {
  Region region;
  const auto take = [&](const std::vector<size_t>& side, size_t count) {
    const auto end = side.begin() + static_cast<std::ptrdiff_t>(std::min(count, side.size()));
    region.nodes.insert(region.nodes.end(), side.begin(), end);
  };
  for (const Sides& sides : all) {
    region.nodes.push_back(sides.collective);
    take(sides.before, before);
    take(sides.after, after);
  }
  std::sort(region.nodes.begin(), region.nodes.end());
  return region;
}

// Nothing if the key of a region names this region; else the reason. Collectives of a bucket with
// different operations around them may have other operations at the same distances.
std::optional<std::string> WhyNotNamed(const ProgramGraph& graph,
                                       const std::vector<size_t>& collectives, const Region& region,
                                       const std::string& key) {
  if (collectives.size() == 1) return std::nullopt;
  const Form form{"", graph, {{collectives}}, InputMap::OfProgram(graph)};
  const Result<ChoiceId> step = ChoiceId::Parse(fmt::format("any/bucket?{}", key));
  COTUNE_CHECK(step.has_value(), "a key of numbers stands in an id");
  const Result<Region> named = RegionOfStep(form, 0, *step);
  if (named && *named == region) return std::nullopt;
  return "the operations around its collectives differ, or stand in another order around each";
}

// The bytes between the steps if the position has no region. A bucket is one step then, and other
// collectives run by themselves.
uint64_t BytesWithoutRegion(const Legality& legality, const std::vector<size_t>& collectives,
                            const ProgramSize& size) {
  if (collectives.size() == 1) return BytesBetween(legality.unfused(), size);
  const Region bucket{collectives};
  const Result<Recipe> packed =
      MakeRecipe(legality.graph(), legality.unfused().inputs, {&bucket, 1});
  return BytesBetween(packed ? *packed : legality.unfused(), size);
}

// The legal regions of a position, the best guess first. Memory between steps is the job's and
// stays for as long as the job runs, so that no region may need more of it: one that absorbs a row
// reduction, and not the operation that reads it beside the row, writes both and saves nothing.
std::vector<Candidate> LegalRegions(const Legality& legality,
                                    const std::vector<size_t>& collectives, const ProgramSize& size,
                                    int32_t depth_max, RefusalList& refusals) {
  const std::vector<Sides> sides = GrowSides(legality, collectives, depth_max, refusals);
  size_t before_max = 0;
  size_t after_max = 0;
  for (const Sides& each : sides) {
    before_max = std::max(before_max, each.before.size());
    after_max = std::max(after_max, each.after.size());
  }
  const uint64_t bytes_unfused = BytesWithoutRegion(legality, collectives, size);
  std::vector<Candidate> legal;
  for (size_t first = 0; first <= before_max; ++first) {
    for (size_t last = 0; last <= after_max; ++last) {
      if (first + last == 0) continue;
      Region region = RegionOf(sides, first, last);
      std::string key = fmt::format("{}={}", kFuseKey, FuseText(legality.graph(), region));
      if (auto reason = WhyNotNamed(legality.graph(), collectives, region, key)) {
        refusals.Add(key, *std::move(reason));
        continue;
      }
      const Result<Recipe> recipe = legality.RecipeWith(region);
      if (!recipe) {
        refusals.Add(key, recipe.error().what);
        continue;
      }
      if (BytesBetween(*recipe, size) > bytes_unfused) {
        refusals.Add(key, "more memory between the steps than without the region");
        continue;
      }
      const double saved = SavedPicoseconds(legality, region, size);
      legal.push_back({std::move(region), std::move(key), saved});
    }
  }
  std::stable_sort(legal.begin(), legal.end(),
                   [](const Candidate& a, const Candidate& b) { return a.saved > b.saved; });
  return legal;
}

}  // namespace

std::vector<Region> EnumerateRegions(const ProgramGraph& graph, size_t collective,
                                     const ProgramSize& size, const FusionRules& rules,
                                     std::vector<Refusal>& refusals) {
  return EnumerateRegions(Legality(graph), {collective}, size, rules, refusals);
}

std::vector<Region> EnumerateRegions(const Legality& legality,
                                     const std::vector<size_t>& collectives,
                                     const ProgramSize& size, const FusionRules& rules,
                                     std::vector<Refusal>& refusals) {
  // One more than the setting allows, which is named as too deep.
  const int32_t depth_max =
      std::max(kDepthGrownMin, std::min(rules.depth_max(), kDepthGrownMax - 1) + 1);
  RefusalList refused(refusals);
  std::vector<Region> regions;
  for (Candidate& each : LegalRegions(legality, collectives, size, depth_max, refused)) {
    if (auto reason = WhyLeftOut(legality.DepthOf(each.region), rules)) {
      refused.Add(each.key, *std::move(reason));
    } else if (regions.size() == kRegionsMax) {
      refused.Add(each.key, fmt::format("beyond {} regions of a collective", kRegionsMax));
    } else {
      regions.push_back(std::move(each.region));
    }
  }
  return regions;
}

void AddRegions(Form& form, const ProgramSize& size, const FusionRules& rules,
                NumericsRule numerics, std::vector<Refusal>& refusals) {
  const Legality legality(form.graph, form.inputs, numerics);
  for (Position& position : form.positions) {
    std::vector<Refusal> refused;
    position.regions = EnumerateRegions(legality, position.collectives, size, rules, refused);
    for (Refusal& each : refused) {
      if (!form.via.empty()) each.choice += fmt::format("&{}={}", kViaKey, form.via);
      const bool is_known =
          std::any_of(refusals.begin(), refusals.end(), [&](const Refusal& other) {
            return other.choice == each.choice && other.reason == each.reason;
          });
      if (!is_known) refusals.push_back(std::move(each));
    }
  }
}

}  // namespace cotune
