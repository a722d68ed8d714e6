#include "fusion/legality.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "fmt/format.h"

namespace cotune {
namespace {

const CollectiveNode* AsCollective(const ProgramGraph& graph, size_t node) {
  return std::get_if<CollectiveNode>(&graph.nodes()[node]);
}

// Returns true if an element of a node's value depends on a whole row of its first operand.
bool ReducesRow(const ComputeNode& node) {
  const OpRule rule = TraitsOf(node.op).rule;
  return rule == OpRule::kReducesRow || rule == OpRule::kNormalises || rule == OpRule::kScales;
}

}  // namespace

Legality::Legality(const ProgramGraph& graph) : Legality(graph, InputMap::OfProgram(graph)) {}

Legality::Legality(const ProgramGraph& graph, const InputMap& inputs, NumericsRule numerics)
    : graph_(graph),
      inputs_(inputs),
      links_(graph),
      unfused_(UnfusedRecipe(graph, inputs)),
      roundings_(unfused_, numerics) {}

std::vector<size_t> Legality::ReadersOf(ValueIndex input) const {
  std::vector<size_t> readers;
  for (size_t other = 0; other < inputs_.inputs.size(); ++other) {
    const auto value = static_cast<ValueIndex>(other);
    if (!inputs_.Overlap(value, input)) continue;
    readers.insert(readers.end(), links_.readers(value).begin(), links_.readers(value).end());
  }
  return readers;
}

std::optional<std::string> Legality::WhyNotBefore(size_t collective, size_t node) const {
  const CollectiveNode& anchor = *AsCollective(graph_, collective);
  if (anchor.collective == Collective::kBroadcast) {
    return "the root alone has operations before a broadcast";
  }
  // With a second reader the value would be computed twice, or be written for that reader alone.
  const ValueIndex value = graph_.value_of_node(node);
  if (links_.readers(value).size() > 1 || links_.is_output(value)) {
    return fmt::format("value %{} before the collective has further readers", value);
  }
  return std::nullopt;
}

std::optional<std::string> Legality::WhyNotNode(size_t collective, size_t node) const {
  const bool is_before = IsBefore(node, collective);
  const bool is_after = IsBefore(collective, node);
  if (AsCollective(graph_, node) != nullptr) {
    return is_before || is_after ? "two collectives on one path"
                                 : "another collective, which is not of its bucket";
  }
  if (!is_before && !is_after) return "no path leads from or to the collective";
  if (is_before) {
    if (auto reason = WhyNotBefore(collective, node)) return reason;
  }
  // A kernel has one loop over rows on each side, and one mapping of a row to threads.
  const ValueIndex beside =
      is_before ? AsCollective(graph_, collective)->operand : graph_.value_of_node(collective);
  if (graph_.type(graph_.value_of_node(node)).rows != graph_.type(beside).rows) {
    return "its value has other rows than the collective's";
  }
  const auto& compute = std::get<ComputeNode>(graph_.nodes()[node]);
  for (const Operand& operand : compute.operands) {
    if (operand.is_literal() || !graph_.is_input(operand.value)) continue;
    if (graph_.inputs()[static_cast<size_t>(operand.value)].is_never_fused) {
      return fmt::format("input %{} has the flag nofuse", operand.value);
    }
  }
  if (ReducesRow(compute) && !compute.operands[0].is_literal() &&
      graph_.type(compute.operands[0].value).columns != graph_.type(beside).columns) {
    return "it reduces over other columns than the collective's";
  }
  return std::nullopt;
}

std::optional<std::string> Legality::WhyNotConvex(const NodeSet& inside) const {
  NodeSet after_inside;
  for (size_t node = 0; node < graph_.nodes().size(); ++node) {
    if (inside[node]) after_inside |= links_.after(node);
  }
  for (size_t node = 0; node < graph_.nodes().size(); ++node) {
    if (inside[node] || !after_inside[node] || (links_.after(node) & inside).none()) continue;
    return "the steps would wait for each other";
  }
  return std::nullopt;
}

// A rank of an all_reduce has an element of the sum after all ranks have given theirs, and the
// elements of a region's values stand in the same rows before and after it. So a backend that lets
// no peer read the rank's memory has read what it overwrites; one that does refuses the region.
// Other collectives move elements between rows, and a share of the input is read at other rows.
bool Legality::MayOverwriteWhatItReads(const std::vector<size_t>& collectives, size_t reader,
                                       ValueIndex input) const {
  const bool reduces_all =
      std::all_of(collectives.begin(), collectives.end(), [&](size_t collective) {
        return AsCollective(graph_, collective)->collective == Collective::kAllReduce;
      });
  if (!reduces_all) return false;
  const std::vector<ValueIndex> read = ValuesReadBy(graph_.nodes()[reader]);
  return std::all_of(read.begin(), read.end(), [&](ValueIndex value) {
    return value == input || !inputs_.Overlap(value, input);
  });
}

// An output that overwrites an input is written while the step runs. A node that reads the input
// and waits for the step would find it overwritten, and so might a peer that reads the operand of
// the collective when this rank has its result already.
std::optional<std::string> Legality::WhyNotInPlace(const std::vector<size_t>& collectives,
                                                   const NodeSet& inside) const {
  const std::vector<std::optional<size_t>> owners = OwnCollectives(graph_, collectives);
  for (const ProgramOutput& output : graph_.outputs()) {
    if (output.into < 0 || graph_.is_input(output.value)) continue;
    const size_t writer = NodeOf(graph_, output.value);
    if (!inside[writer]) continue;
    for (const size_t reader : ReadersOf(output.into)) {
      // The pieces of a bucket are computed in any order.
      const bool is_of_other_piece = collectives.size() > 1 && owners[reader] != owners[writer];
      const bool is_for_peers = std::any_of(
          collectives.begin(), collectives.end(),
          [&](size_t collective) { return reader == collective || IsBefore(reader, collective); });
      const bool is_read_late =
          is_of_other_piece ||
          (is_for_peers && !MayOverwriteWhatItReads(collectives, reader, output.into));
      bool waits = false;
      for (size_t node = 0; node < graph_.nodes().size(); ++node) {
        waits = waits || (inside[node] && links_.after(node)[reader]);
      }
      if (inside[reader] ? is_read_late : waits) {
        return fmt::format(
            "output %{} overwrites an input that a later step, or a peer, still reads",
            output.value);
      }
    }
  }
  return std::nullopt;
}

std::optional<std::string> Legality::WhyNotStored(const SubgraphBoundary& boundary) const {
  for (const std::vector<ValueIndex>& values : {boundary.inputs, boundary.outputs}) {
    for (const ValueIndex value : values) {
      if (roundings_.MayBeStored(value)) continue;
      return fmt::format("%{} is rounded where the region would end, and not in the program",
                         value);
    }
  }
  return std::nullopt;
}

std::optional<std::string> Legality::WhyNotBucket(const Region& region,
                                                  const std::vector<size_t>& collectives) const {
  const auto& first = *AsCollective(graph_, collectives.front());
  for (const size_t other : collectives) {
    if (other == collectives.front()) continue;
    if (auto reason = WhyNotNode(collectives.front(), other); IsBefore(collectives.front(), other))
      return reason;
    const auto& collective = *AsCollective(graph_, other);
    if (collective.collective != first.collective || collective.reduction != first.reduction ||
        collective.root != first.root) {
      return "the collectives of a bucket have one kind, reduction, root and dtype";
    }
  }
  const std::vector<std::optional<size_t>> owners = OwnCollectives(graph_, collectives);
  for (const size_t node : region.nodes) {
    if (AsCollective(graph_, node) != nullptr) continue;
    if (!owners[node]) {
      return fmt::format("%{} belongs to no collective of the bucket alone",
                         graph_.value_of_node(node));
    }
    if (auto reason = WhyNotNode(*owners[node], node)) return reason;
  }
  return std::nullopt;
}

std::optional<std::string> Legality::WhyNotStep(const Region& region) const {
  const std::vector<size_t> collectives = CollectivesOf(graph_, region);
  if (collectives.empty()) return "a region has a collective";
  NodeSet inside;
  for (const size_t node : region.nodes) inside.set(node);
  if (collectives.size() > 1) {
    if (auto reason = WhyNotBucket(region, collectives)) return reason;
  } else {
    for (const size_t node : region.nodes) {
      if (node == collectives[0]) continue;
      if (auto reason = WhyNotNode(collectives[0], node)) return reason;
    }
  }
  if (auto reason = WhyNotConvex(inside)) return reason;
  const SubgraphBoundary boundary = SubgraphBoundary::Of(graph_, links_, region.nodes);
  if (boundary.outputs.size() > kRegionOutputsMax * collectives.size()) {
    return fmt::format("more than {} outputs", kRegionOutputsMax * collectives.size());
  }
  if (auto reason = WhyNotInPlace(collectives, inside)) return reason;
  return WhyNotStored(boundary);
}

Result<Recipe> Legality::RecipeWith(const Region& region) const {
  if (auto reason = WhyNotStep(region)) return Fail(ErrorCode::kUnsupported, *std::move(reason));
  COTUNE_TRY(Recipe recipe, MakeRecipe(graph_, inputs_, {&region, 1}));
  if (auto reason = WhyNotRecipe(recipe)) return Fail(ErrorCode::kUnsupported, *std::move(reason));
  return recipe;
}

std::optional<std::string> Legality::WhyNotRegion(const Region& region) const {
  Result<Recipe> recipe = RecipeWith(region);
  if (recipe) return std::nullopt;
  return std::move(recipe.error().what);
}

std::optional<std::string> Legality::WhyNotRecipe(const Recipe& recipe) const {
  const std::optional<ValueIndex> changed = roundings_.FirstChanged(recipe);
  if (!changed) return std::nullopt;
  return roundings_.IsRoundedInProgram(*changed)
             ? fmt::format("%{} is rounded in the program, and would not be in these steps",
                           *changed)
             : fmt::format("%{} would be rounded between two steps, and is not in the program",
                           *changed);
}

RegionDepth DepthOf(const ProgramGraph& graph, const NodeLinks& links, const Region& region) {
  RegionDepth deepest;
  for (const size_t collective : CollectivesOf(graph, region)) {
    RegionDepth depth;
    for (const size_t node : region.nodes) {
      if (links.after(node)[collective]) ++depth.before;
      if (links.after(collective)[node]) ++depth.after;
    }
    deepest = {std::max(deepest.before, depth.before), std::max(deepest.after, depth.after)};
  }
  return deepest;
}

std::optional<std::string> WhyNotRegion(const ProgramGraph& graph, const Region& region) {
  return Legality(graph).WhyNotRegion(region);
}

std::optional<std::string> WhyNotAbsorb(const ProgramGraph& graph, const Region& region,
                                        size_t node, const FusionRules& rules) {
  const Legality legality(graph);
  const size_t collective = CollectiveOf(graph, region);
  if (auto reason = legality.WhyNotNode(collective, node)) return reason;
  Region grown = region;
  grown.nodes.insert(std::upper_bound(grown.nodes.begin(), grown.nodes.end(), node), node);
  return WhyLeftOut(legality.DepthOf(grown), rules);
}

std::optional<std::string> WhyLeftOut(const RegionDepth& depth, const FusionRules& rules) {
  const auto has = [&](FusionType type) { return (rules.types & static_cast<uint8_t>(type)) != 0; };
  if (!rules.enabled) return "collective_fusion_enabled is off";
  if (depth.before > 0 && !has(FusionType::kPrologue)) {
    return "custom_op_fusion_types leaves prologues out";
  }
  if (depth.after > 0 && !has(FusionType::kEpilogue)) {
    return "custom_op_fusion_types leaves epilogues out";
  }
  if (depth.after > 0 && !rules.benchmarks_epilogues) {
    return "benchmark_collective_epilogue_fusion is off";
  }
  const int32_t deepest = std::max(depth.before, depth.after);
  if (deepest > 1 && !rules.is_recursive) return "enable_recursive_fusion is off";
  if (deepest > rules.max_depth) {
    return fmt::format("deeper than max_fusion_depth ({})", rules.max_depth);
  }
  return std::nullopt;
}

}  // namespace cotune
