#include "fusion/bucket.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "core/recipe/make_recipe.h"
#include "fmt/format.h"
#include "fusion/node_links.h"
#include "fusion/roundings.h"

namespace cotune {
namespace {

const CollectiveNode* CollectiveAt(const ProgramGraph& graph, size_t node) {
  return std::get_if<CollectiveNode>(&graph.nodes()[node]);
}

bool IsOutput(const ProgramGraph& graph, ValueIndex value) {
  return std::any_of(graph.outputs().begin(), graph.outputs().end(),
                     [&](const ProgramOutput& output) { return output.value == value; });
}

// The number of collectives on the longest path to each node, itself included. Two with equal
// numbers do not depend on each other.
std::vector<int> CollectiveDepths(const ProgramGraph& graph) {
  std::vector<int> depths(graph.nodes().size());
  const auto depth_of = [&](ValueIndex value) {
    return graph.is_input(value) ? 0 : depths[static_cast<size_t>(value) - graph.inputs().size()];
  };
  for (size_t node = 0; node < depths.size(); ++node) {
    if (const CollectiveNode* const collective = CollectiveAt(graph, node)) {
      depths[node] = depth_of(collective->operand) + 1;
      continue;
    }
    for (const Operand& operand : std::get<ComputeNode>(graph.nodes()[node]).operands) {
      if (!operand.is_literal()) depths[node] = std::max(depths[node], depth_of(operand.value));
    }
  }
  return depths;
}

// The collectives that run together, by their nodes in the graph of the program.
std::vector<std::vector<size_t>> BucketsOf(const ProgramGraph& graph) {
  using Kind = std::tuple<int, Collective, Reduction, int32_t, Dtype>;
  const std::vector<int> depths = CollectiveDepths(graph);
  std::vector<std::pair<Kind, std::vector<size_t>>> buckets;
  for (const size_t node : graph.collectives()) {
    const CollectiveNode& collective = *CollectiveAt(graph, node);
    if (collective.collective != Collective::kAllReduce &&
        collective.collective != Collective::kBroadcast) {
      continue;
    }
    const Kind kind{depths[node], collective.collective, collective.reduction, collective.root,
                    graph.type(collective.operand).dtype};
    const auto open = std::find_if(buckets.begin(), buckets.end(), [&](const auto& bucket) {
      return bucket.first == kind && bucket.second.size() < kProgramInputsMax;
    });
    if (open == buckets.end()) {
      buckets.push_back({kind, {node}});
    } else {
      open->second.push_back(node);
    }
  }
  std::vector<std::vector<size_t>> several;
  for (auto& [kind, nodes] : buckets) {
    if (nodes.size() > 1) several.push_back(std::move(nodes));
  }
  return several;
}

// The nodes of a graph in an order in which the local operations around each collective stand next
// to it, so that collectives with the same surroundings have the same keys `fuse`. Collectives keep
// their order, and so does a program that overwrites inputs, whose order has a meaning.
class OrderByCollective {
 public:
  explicit OrderByCollective(const ProgramGraph& graph)
      : graph_(graph), is_placed_(graph.nodes().size()) {}

  std::vector<size_t> Order() && {
    const bool overwrites =
        std::any_of(graph_.outputs().begin(), graph_.outputs().end(),
                    [](const ProgramOutput& output) { return output.into >= 0; });
    if (!overwrites) {
      const std::vector<size_t> last = LastCollectives();
      for (const size_t collective : graph_.collectives()) {
        Place(collective);
        for (size_t node = 0; node < last.size(); ++node) {
          if (last[node] == collective) Place(node);
        }
      }
    }
    for (size_t node = 0; node < graph_.nodes().size(); ++node) Place(node);
    return std::move(order_);
  }

 private:
  // The last collective that each local operation follows from; SIZE_MAX: none, or a collective.
  std::vector<size_t> LastCollectives() const {
    std::vector<size_t> last(graph_.nodes().size(), SIZE_MAX);
    for (size_t node = 0; node < last.size(); ++node) {
      if (CollectiveAt(graph_, node) != nullptr) continue;
      for (const ValueIndex value : ValuesReadBy(graph_.nodes()[node])) {
        if (graph_.is_input(value)) continue;
        const size_t source = NodeOf(graph_, value);
        const size_t found = CollectiveAt(graph_, source) != nullptr ? source : last[source];
        if (found != SIZE_MAX && (last[node] == SIZE_MAX || found > last[node])) last[node] = found;
      }
    }
    return last;
  }
  // Appends a node after all that it is computed from.
  void Place(size_t node) {
    if (is_placed_[node]) return;
    is_placed_[node] = true;
    for (const ValueIndex value : ValuesReadBy(graph_.nodes()[node])) {
      if (!graph_.is_input(value)) Place(NodeOf(graph_, value));
    }
    order_.push_back(node);
  }

  const ProgramGraph& graph_;
  std::vector<bool> is_placed_;
  std::vector<size_t> order_;
};

// Writes the graph of the form.
class BucketWriter {
 public:
  explicit BucketWriter(const ProgramGraph& graph)
      : graph_(graph), parts_{graph.name(), graph.inputs(), {}, {}} {
    new_values_.resize(graph.value_count());
    std::iota(new_values_.begin(), new_values_.end(), ValueIndex{0});
  }

  // The value of the form that each value of the program is.
  const std::vector<ValueIndex>& new_values() const { return new_values_; }

  Result<Form> Write(const std::vector<std::vector<size_t>>& buckets) {
    std::vector<Position> positions;
    std::vector<size_t> position_of_bucket(buckets.size(), SIZE_MAX);
    for (const size_t node : OrderByCollective(graph_).Order()) {
      const auto bucket = std::find_if(buckets.begin(), buckets.end(), [&](const auto& nodes) {
        return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
      });
      if (bucket == buckets.end()) {
        AddAlone(node);
        if (CollectiveAt(graph_, node) != nullptr) positions.push_back({{LastNode()}});
        continue;
      }
      const size_t collective = AddPacked(node);
      size_t& position = position_of_bucket[static_cast<size_t>(bucket - buckets.begin())];
      if (position == SIZE_MAX) {
        position = positions.size();
        positions.push_back({{collective}});
      } else {
        positions[position].collectives.push_back(collective);
      }
    }
    for (const ProgramOutput& output : graph_.outputs()) {
      const auto copy = output_copies_.find(output.value);
      parts_.outputs.push_back(
          {copy == output_copies_.end() ? New(output.value) : copy->second, output.into});
    }
    COTUNE_TRY(ProgramGraph made, ProgramGraph::Make(std::move(parts_)));
    InputMap inputs = InputMap::OfProgram(made);
    return Form{kBucket, std::move(made), std::move(positions), std::move(inputs)};
  }

 private:
  ValueIndex New(ValueIndex value) const { return new_values_[static_cast<size_t>(value)]; }
  void SetNew(size_t node, ValueIndex value) {
    new_values_[static_cast<size_t>(graph_.value_of_node(node))] = value;
  }
  size_t LastNode() const { return parts_.nodes.size() - 1; }
  ValueIndex Append(ProgramNode node) {
    parts_.nodes.push_back(std::move(node));
    return static_cast<ValueIndex>(parts_.inputs.size() + LastNode());
  }
  ValueIndex AppendCopy(ValueIndex value, Dtype dtype) {
    return Append(ComputeNode{.op = Op::kCast, .operands = {{.value = value}}, .to = dtype});
  }

  // Adds a node that stands in no bucket.
  void AddAlone(size_t node) {
    ProgramNode copy = graph_.nodes()[node];
    if (auto* const collective = std::get_if<CollectiveNode>(&copy)) {
      collective->operand = New(collective->operand);
    } else {
      for (Operand& operand : std::get<ComputeNode>(copy).operands) {
        if (!operand.is_literal()) operand.value = New(operand.value);
      }
    }
    SetNew(node, Append(std::move(copy)));
  }

  // Adds a collective of a bucket, with copies of its operand and its value if these cannot be
  // pieces. Returns its node.
  size_t AddPacked(size_t node) {
    CollectiveNode collective = *CollectiveAt(graph_, node);
    const ValueIndex operand = collective.operand;
    const Dtype dtype = graph_.type(operand).dtype;
    collective.operand = New(operand);
    const bool is_piece = pieces_.contains(collective.operand);
    if (graph_.is_input(operand) || IsOutput(graph_, operand) || is_piece) {
      collective.operand = AppendCopy(collective.operand, dtype);
    }
    const ValueIndex value = Append(collective);
    const size_t made = LastNode();
    pieces_.insert({collective.operand, value});
    SetNew(node, value);
    const ValueIndex before = graph_.value_of_node(node);
    if (IsOutput(graph_, before)) output_copies_[before] = AppendCopy(value, dtype);
    return made;
  }

  const ProgramGraph& graph_;
  ProgramParts parts_;
  std::vector<ValueIndex> new_values_;  // the new value of each value of the program
  std::map<ValueIndex, ValueIndex> output_copies_;
  std::set<ValueIndex> pieces_;
};

}  // namespace

Result<Form> BucketForm(const ProgramGraph& graph) {
  const std::vector<std::vector<size_t>> buckets = BucketsOf(graph);
  if (buckets.empty()) {
    return Fail(
        ErrorCode::kUnsupported,
        "no two all_reduces or broadcasts of one reduction, root and dtype are independent");
  }
  BucketWriter writer(graph);
  COTUNE_TRY(Form form, writer.Write(buckets));
  // Copies that overwrite inputs may have to wait for collectives of their bucket.
  COTUNE_TRY(const Recipe recipe, MakeRecipe(form.graph, form.Buckets()));
  // A bucket may run later than one of its collectives alone, and copies may make a part too large,
  // so that local operations which were one part are two, and the value between them is rounded.
  const Recipe unfused = UnfusedRecipe(graph);
  const Roundings roundings(unfused);
  const std::vector<bool> rounded = RoundedBy(recipe);
  for (size_t value = 0; value < graph.value_count(); ++value) {
    const auto index = static_cast<ValueIndex>(value);
    const bool is_rounded = rounded[static_cast<size_t>(writer.new_values()[value])];
    if (roundings.IsExact(index) || roundings.IsRoundedInProgram(index) == is_rounded) continue;
    return Fail(ErrorCode::kUnsupported,
                fmt::format("%{} would be rounded, and is not in the program as it is", value));
  }
  return form;
}

}  // namespace cotune
