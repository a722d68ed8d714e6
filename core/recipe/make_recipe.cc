#include "core/recipe/make_recipe.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "core/base/check.h"
#include "fmt/format.h"

namespace cotune {
namespace {

bool IsCollective(const ProgramGraph& graph, size_t node) {
  return std::holds_alternative<CollectiveNode>(graph.nodes()[node]);
}

// The nodes of a graph in groups: a region, a collective without a region, or a local operation.
// The steps are, level by level, the parts of the local operations with one kind of rows (one row,
// all, a share), and then the regions and collectives in order.
class Levels {
 public:
  Levels(const ProgramGraph& graph, const InputMap& inputs, std::span<const Region> regions)
      : graph_(graph), inputs_(inputs) {
    group_of_.resize(graph.nodes().size());
    for (size_t node = 0; node < group_of_.size(); ++node) {
      const auto region = std::find_if(regions.begin(), regions.end(), [&](const Region& each) {
        return std::find(each.nodes.begin(), each.nodes.end(), node) != each.nodes.end();
      });
      group_of_[node] = region == regions.end() ? node : CollectiveOf(graph, *region);
    }
    level_of_.resize(group_of_.size());
  }

  // Returns false if a group waits for itself: a path leaves it and comes back.
  bool Assign() {
    // A pass sets the levels of all groups but those that wait for a later one.
    for (size_t pass = 0; pass <= group_of_.size(); ++pass) {
      bool has_changed = false;
      for (size_t node = 0; node < group_of_.size(); ++node) {
        int& level = level_of_[group_of_[node]];
        const int found = std::max(BehindOperands(node), BehindReaders(node));
        has_changed = has_changed || found > level;
        level = std::max(level, found);
        last_ = std::max(last_, level);
      }
      if (!has_changed) return true;
    }
    return false;
  }

  int last() const { return last_; }
  // Each of its regions and collectives, by the nodes.
  std::vector<std::vector<size_t>> BackendStepsAt(int level) const {
    std::vector<std::vector<size_t>> groups;
    for (const size_t collective : graph_.collectives()) {
      if (group_of_[collective] != collective || level_of_[collective] != level) continue;
      std::vector<size_t>& nodes = groups.emplace_back();
      for (size_t node = 0; node < group_of_.size(); ++node) {
        if (group_of_[node] == collective) nodes.push_back(node);
      }
    }
    return groups;
  }
  std::vector<size_t> PartAt(int level, Rows rows) const {
    std::vector<size_t> nodes;
    for (size_t node = 0; node < group_of_.size(); ++node) {
      if (!IsInBackendStep(node) && level_of_[node] == level && RowsOf(node) == rows) {
        nodes.push_back(node);
      }
    }
    return nodes;
  }

 private:
  bool IsInBackendStep(size_t node) const { return IsCollective(graph_, group_of_[node]); }
  Rows RowsOf(size_t node) const { return graph_.type(graph_.value_of_node(node)).rows; }

  // Returns true if a step may stand in the level of the one whose value it reads: the backend
  // steps of a level run after its parts, in the order of their collectives.
  bool MayShare(size_t source, size_t node) const {
    if (!IsInBackendStep(source)) return true;
    return IsInBackendStep(node) && group_of_[source] < group_of_[node];
  }

  int BehindOperands(size_t node) const {
    int level = 0;
    for (const ValueIndex value : ValuesReadBy(graph_.nodes()[node])) {
      if (graph_.is_input(value)) continue;
      const size_t source = static_cast<size_t>(value) - graph_.inputs().size();
      if (group_of_[source] == group_of_[node]) continue;
      level = std::max(level, level_of_[group_of_[source]] + (MayShare(source, node) ? 0 : 1));
    }
    return level;
  }

  bool ReadsMemoryOf(size_t node, ValueIndex input) const {
    const std::vector<ValueIndex> read = ValuesReadBy(graph_.nodes()[node]);
    return std::any_of(read.begin(), read.end(),
                       [&](ValueIndex value) { return inputs_.Overlap(value, input); });
  }

  // A node whose value overwrites an input comes after the readers of the input. It may stand in
  // one part with them, since a part reads a row of its inputs before it writes that row.
  int BehindReaders(size_t node) const {
    int level = 0;
    for (const ProgramOutput& output : graph_.outputs()) {
      if (output.value != graph_.value_of_node(node) || output.into < 0) continue;
      for (size_t reader = 0; reader < group_of_.size(); ++reader) {
        if (group_of_[reader] == group_of_[node]) continue;
        if (!ReadsMemoryOf(reader, output.into)) continue;
        const bool is_same_part = !IsInBackendStep(reader) && RowsOf(reader) == RowsOf(node);
        const bool may_share = IsInBackendStep(node) ? MayShare(reader, node) : is_same_part;
        level = std::max(level, level_of_[group_of_[reader]] + (may_share ? 0 : 1));
      }
    }
    return level;
  }

  const ProgramGraph& graph_;
  const InputMap& inputs_;
  // The group of each node, by the first collective in it; a local operation outside of regions is
  // one of its own. Levels are those of the groups.
  std::vector<size_t> group_of_;
  std::vector<int> level_of_;
  int last_ = 0;
};

// Splits local operations that have more operands than a program may have.
class PartSplitter {
 public:
  // The nodes may stand in one part.
  PartSplitter(const ProgramGraph& graph, std::vector<size_t> nodes)
      : graph_(graph), nodes_(std::move(nodes)) {}

  // Each part reads values of earlier ones alone, and overwrites no input that a later one reads.
  std::vector<std::vector<size_t>> Split() {
    if (nodes_.empty()) return {};
    if (Fits(nodes_)) return {nodes_};
    std::vector<std::vector<size_t>> parts(1);
    for (const size_t node : InOrder()) {
      std::vector<size_t> longer = parts.back();
      longer.insert(std::upper_bound(longer.begin(), longer.end(), node), node);
      if (parts.back().empty() || Fits(longer)) {
        parts.back() = std::move(longer);
      } else {
        parts.push_back({node});
      }
    }
    return parts;
  }

 private:
  bool Fits(const std::vector<size_t>& nodes) const {
    const std::set<size_t> inside(nodes.begin(), nodes.end());
    std::set<ValueIndex> entering;
    std::set<ValueIndex> leaving;
    for (const size_t node : nodes) {
      for (const ValueIndex value : ValuesReadBy(graph_.nodes()[node])) {
        if (graph_.is_input(value) || !inside.contains(NodeOf(value))) entering.insert(value);
      }
    }
    for (size_t reader = 0; reader < graph_.nodes().size(); ++reader) {
      if (inside.contains(reader)) continue;
      for (const ValueIndex value : ValuesReadBy(graph_.nodes()[reader])) {
        if (!graph_.is_input(value) && inside.contains(NodeOf(value))) leaving.insert(value);
      }
    }
    for (const ProgramOutput& output : graph_.outputs()) {
      if (!graph_.is_input(output.value) && inside.contains(NodeOf(output.value))) {
        leaving.insert(output.value);
      }
    }
    return entering.size() <= kProgramInputsMax && leaving.size() <= kProgramOutputsMax;
  }
  size_t NodeOf(ValueIndex value) const {
    return static_cast<size_t>(value) - graph_.inputs().size();
  }

  // Operands before readers, and readers of an input before the node that overwrites it. If a node
  // that overwrites an input is needed by a reader of that input, the order of the graph decides.
  std::vector<size_t> InOrder() const {
    std::vector<size_t> left = nodes_;
    std::vector<size_t> ordered;
    while (!left.empty()) {
      const auto next = std::find_if(left.begin(), left.end(), [&](size_t node) {
        return std::none_of(left.begin(), left.end(),
                            [&](size_t other) { return other != node && IsBefore(other, node); });
      });
      const auto taken = next == left.end() ? left.begin() : next;
      ordered.push_back(*taken);
      left.erase(taken);
    }
    return ordered;
  }
  bool IsBefore(size_t first, size_t second) const {
    const std::vector<ValueIndex> read = ValuesReadBy(graph_.nodes()[second]);
    if (std::find(read.begin(), read.end(), graph_.value_of_node(first)) != read.end()) return true;
    const std::vector<ValueIndex> read_first = ValuesReadBy(graph_.nodes()[first]);
    return std::any_of(
        graph_.outputs().begin(), graph_.outputs().end(), [&](const ProgramOutput& output) {
          return output.value == graph_.value_of_node(second) && output.into >= 0 &&
                 std::find(read_first.begin(), read_first.end(), output.into) != read_first.end();
        });
  }

  const ProgramGraph& graph_;
  std::vector<size_t> nodes_;
};

// Appends steps and gives each value its slot.
class RecipeMaker {
 public:
  RecipeMaker(const ProgramGraph& graph, const InputMap& inputs)
      : graph_(graph), recipe_{graph, inputs, {}, {}, {}} {
    SlotIndex next_share = recipe_.first_share();
    for (size_t i = 0; i < inputs.inputs.size(); ++i) {
      const InputMap::Input& input = inputs.inputs[i];
      slots_[static_cast<ValueIndex>(i)] = input.is_share ? next_share++ : input.of_program;
    }
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      const ProgramOutput& output = graph.outputs()[i];
      slots_[output.value] = output.into >= 0 ? slots_.at(output.into)
                                              : recipe_.first_output() + static_cast<SlotIndex>(i);
    }
    for (const ProgramNode& node : graph.nodes()) {
      for (const ValueIndex value : ValuesReadBy(node)) ++readers_left_[value];
    }
  }

  // Adds a step that runs `nodes`, whose values leave it in this order; the steps that define its
  // operands were added before.
  // kUnsupported: a region has more operands than a program may have.
  Status Add(std::variant<BackendStep, PartStep> work, const std::vector<size_t>& nodes) {
    const std::set<size_t> inside(nodes.begin(), nodes.end());
    std::map<ValueIndex, int> entering;  // and how many operands it is
    std::map<ValueIndex, int> read_inside;
    for (const size_t node : nodes) {
      for (const ValueIndex value : ValuesReadBy(graph_.nodes()[node])) {
        const bool is_inner = !graph_.is_input(value) &&
                              inside.contains(static_cast<size_t>(value) - graph_.inputs().size());
        ++(is_inner ? read_inside : entering)[value];
      }
    }
    std::vector<ProgramOutput> leaving;
    for (const size_t node : nodes) {
      const ValueIndex value = graph_.value_of_node(node);
      const ProgramOutput* output = OutputOf(value);
      if (output != nullptr)
        leaving.push_back(*output);
      else if (readers_left_[value] > read_inside[value])
        leaving.push_back({value, -1});
    }
    const bool is_part = std::holds_alternative<PartStep>(work);
    if (!is_part && (entering.size() > kProgramInputsMax || leaving.size() > kProgramOutputsMax)) {
      return Fail(
          ErrorCode::kUnsupported,
          fmt::format("a step would have {} inputs and {} outputs, of which {} and {} are the "
                      "most",
                      entering.size(), leaving.size(), kProgramInputsMax, kProgramOutputsMax));
    }
    const std::vector<size_t> ascending(inside.begin(), inside.end());
    const ProgramGraph own = graph_.Region(ascending, leaving);
    RecipeStep step{std::move(work), ascending, is_part ? own.Lower() : own, {}, {}};
    for (const auto& [value, operands] : entering) {
      step.inputs.push_back(SlotOf(value));
      Read(value, operands);
    }
    for (const ProgramOutput& output : leaving) {
      step.outputs.push_back(Define(output.value));
      readers_left_[output.value] -= read_inside[output.value];
    }
    recipe_.steps.push_back(std::move(step));
    return {};
  }

  // Packs the operands of a bucket, and its values.
  void Pack(const std::vector<size_t>& bucket) {
    std::vector<ValueIndex> operands;
    std::vector<ValueIndex> values;
    for (const size_t node : bucket) {
      operands.push_back(ValuesReadBy(graph_.nodes()[node]).front());
      values.push_back(graph_.value_of_node(node));
    }
    recipe_.packs.push_back(std::move(operands));
    recipe_.packs.push_back(std::move(values));
  }

  Recipe Finish() { return std::move(recipe_); }

 private:
  const ProgramOutput* OutputOf(ValueIndex value) const {
    for (const ProgramOutput& output : graph_.outputs()) {
      if (output.value == value) return &output;
    }
    return nullptr;
  }
  SlotIndex SlotOf(ValueIndex value) const { return slots_.at(value); }

  SlotIndex Define(ValueIndex value) {
    const auto known = slots_.find(value);
    if (known != slots_.end()) return known->second;
    const SlotIndex slot =
        recipe_.first_temporary() + static_cast<SlotIndex>(recipe_.temporaries.size());
    recipe_.temporaries.push_back({value, recipe_.steps.size(), recipe_.steps.size()});
    slots_[value] = slot;
    return slot;
  }
  void Read(ValueIndex value, int operands) {
    readers_left_[value] -= operands;
    const SlotIndex temporary = SlotOf(value) - recipe_.first_temporary();
    if (temporary >= 0) {
      recipe_.temporaries[static_cast<size_t>(temporary)].last_step = recipe_.steps.size();
    }
  }

  const ProgramGraph& graph_;
  std::map<ValueIndex, SlotIndex> slots_;
  std::map<ValueIndex, int> readers_left_;  // operands that have yet to be read
  Recipe recipe_;
};

// Lets a temporary lie in an output where the part that reads it last computes the output of its
// type from it: a call then touches less memory, and the part writes what its caches hold. Nothing
// else uses the output's memory before.
class OutputReuse {
 public:
  explicit OutputReuse(Recipe& recipe) : recipe_(recipe) {}

  void Apply() {
    for (size_t i = 0; i < recipe_.temporaries.size();) {
      const SlotIndex slot = recipe_.first_temporary() + static_cast<SlotIndex>(i);
      std::optional<SlotIndex> output;
      if (!IsPiece(recipe_.temporaries[i].value)) {
        output = Reuse(recipe_.temporaries[i].last_step, slot);
      }
      if (!output) {
        ++i;
        continue;
      }
      Replace(slot, *output);
      recipe_.temporaries.erase(recipe_.temporaries.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

 private:
  bool IsPiece(ValueIndex value) const {
    return std::any_of(recipe_.packs.begin(), recipe_.packs.end(), [&](const auto& pack) {
      return std::find(pack.begin(), pack.end(), value) != pack.end();
    });
  }
  // The output that the step lets the temporary lie in, if there is one; the part then overwrites
  // the temporary.
  std::optional<SlotIndex> Reuse(size_t last_step, SlotIndex temporary) {
    RecipeStep& step = recipe_.steps[last_step];
    if (!step.is_part()) return std::nullopt;
    ProgramGraph& part = step.program;
    const auto read = std::find(step.inputs.begin(), step.inputs.end(), temporary);
    if (read == step.inputs.end()) return std::nullopt;
    const auto input = static_cast<ValueIndex>(read - step.inputs.begin());
    for (size_t i = 0; i < step.outputs.size(); ++i) {
      const SlotIndex slot = step.outputs[i];
      const ProgramOutput& output = part.outputs()[i];
      const bool is_free =
          slot >= recipe_.first_output() && slot < recipe_.first_share() && output.into < 0;
      if (!is_free || part.type(output.value) != part.type(input)) continue;
      ProgramParts parts{part.name(), part.inputs(), part.nodes(), part.outputs()};
      parts.outputs[i].into = input;
      // It is refused if a later operation still reads the temporary.
      auto overwriting = ProgramGraph::Verify(std::move(parts), true);
      if (!overwriting) continue;
      part = std::move(*overwriting);
      return slot;
    }
    return std::nullopt;
  }

  void Replace(SlotIndex slot, SlotIndex output) {
    const auto renumber = [&](std::vector<SlotIndex>& slots) {
      for (SlotIndex& each : slots) each = each == slot ? output : each > slot ? each - 1 : each;
    };
    for (RecipeStep& step : recipe_.steps) {
      renumber(step.inputs);
      renumber(step.outputs);
    }
  }

  Recipe& recipe_;
};

// Nothing if collectives can run as one; else the reason.
std::optional<std::string> WhyNoBucket(const ProgramGraph& graph,
                                       const std::vector<size_t>& collectives) {
  const auto& first = std::get<CollectiveNode>(graph.nodes()[collectives.front()]);
  const Dtype dtype = graph.type(first.operand).dtype;
  if (first.collective != Collective::kAllReduce && first.collective != Collective::kBroadcast) {
    return fmt::format("the blocks of several {}s do not lie one after another in a packed value",
                       Name(first.collective));
  }
  for (const size_t node : collectives) {
    const auto& collective = std::get<CollectiveNode>(graph.nodes()[node]);
    if (collective.collective == first.collective && collective.reduction == first.reduction &&
        collective.root == first.root && graph.type(collective.operand).dtype == dtype) {
      continue;
    }
    return "the collectives of a bucket have one kind, reduction, root and dtype";
  }
  if (collectives.size() > kProgramInputsMax) return "a bucket has more than 16 collectives";
  return std::nullopt;
}

// Nothing if the operands and values of a bucket without local operations can lie in packed values;
// else the reason. `pieces` are those of the buckets before.
std::optional<std::string> WhyNotPacked(const ProgramGraph& graph,
                                        const std::vector<size_t>& bucket,
                                        std::set<ValueIndex>& pieces) {
  for (const size_t node : bucket) {
    const ValueIndex operand = std::get<CollectiveNode>(graph.nodes()[node]).operand;
    if (graph.is_input(operand)) return "an operand of a bucket is an input";
    for (const ValueIndex piece : {operand, graph.value_of_node(node)}) {
      if (!pieces.insert(piece).second) return "a value of a bucket would have two places";
      for (const ProgramOutput& output : graph.outputs()) {
        if (output.value == piece) return "a value of a bucket is an output";
      }
    }
  }
  return std::nullopt;
}

// Nothing if each node of a region belongs to one of its collectives; else the reason.
std::optional<std::string> WhyNotApart(const ProgramGraph& graph, const Region& region,
                                       const std::vector<size_t>& collectives) {
  const std::vector<std::optional<size_t>> owners = OwnCollectives(graph, collectives);
  for (const size_t node : region.nodes) {
    if (owners[node]) continue;
    return fmt::format("%{} belongs to no collective of the bucket alone",
                       graph.value_of_node(node));
  }
  return std::nullopt;
}

Status CheckRegion(const ProgramGraph& graph, const Region& region, std::set<ValueIndex>& pieces) {
  const std::vector<size_t> collectives = CollectivesOf(graph, region);
  if (collectives.empty()) return Fail(ErrorCode::kUnsupported, "a region has a collective");
  if (collectives.size() == 1) return {};
  std::optional<std::string> reason = WhyNoBucket(graph, collectives);
  if (!reason) {
    reason = collectives.size() == region.nodes.size() ? WhyNotPacked(graph, collectives, pieces)
                                                       : WhyNotApart(graph, region, collectives);
  }
  if (reason) return Fail(ErrorCode::kUnsupported, *std::move(reason));
  return {};
}

}  // namespace

std::vector<size_t> CollectivesOf(const ProgramGraph& graph, const Region& region) {
  std::vector<size_t> collectives;
  std::copy_if(region.nodes.begin(), region.nodes.end(), std::back_inserter(collectives),
               [&](size_t node) { return IsCollective(graph, node); });
  return collectives;
}

std::vector<std::optional<size_t>> OwnCollectives(const ProgramGraph& graph,
                                                  const std::vector<size_t>& collectives) {
  const size_t nodes = graph.nodes().size();
  std::vector<std::vector<size_t>> linked(nodes);  // collectives, by node
  for (const size_t collective : collectives) {
    std::vector<bool> is_after(nodes);
    std::vector<bool> is_before(nodes);
    is_after[collective] = is_before[collective] = true;
    const auto for_sources = [&](size_t node, const auto& use) {
      for (const ValueIndex value : ValuesReadBy(graph.nodes()[node])) {
        if (!graph.is_input(value)) use(static_cast<size_t>(value) - graph.inputs().size());
      }
    };
    for (size_t node = 0; node < nodes; ++node) {
      for_sources(node, [&](size_t source) {
        if (is_after[source]) is_after[node] = true;
      });
    }
    for (size_t node = nodes; node-- > 0;) {
      if (!is_before[node]) continue;
      for_sources(node, [&](size_t source) { is_before[source] = true; });
    }
    for (size_t node = 0; node < nodes; ++node) {
      if (is_after[node] || is_before[node]) linked[node].push_back(collective);
    }
  }
  std::vector<std::optional<size_t>> owners(nodes);
  for (size_t node = 0; node < nodes; ++node) {
    if (linked[node].size() == 1) owners[node] = linked[node].front();
  }
  return owners;
}

size_t CollectiveOf(const ProgramGraph& graph, const Region& region) {
  const auto found = std::find_if(region.nodes.begin(), region.nodes.end(),
                                  [&](size_t node) { return IsCollective(graph, node); });
  COTUNE_CHECK(found != region.nodes.end(), "a region has a collective");
  return *found;
}

Result<Recipe> MakeRecipe(const ProgramGraph& graph, const InputMap& inputs,
                          std::span<const Region> regions) {
  COTUNE_CHECK(inputs.inputs.size() == graph.inputs().size(), "each input of a graph is known");
  std::set<size_t> taken;
  std::set<ValueIndex> pieces;
  for (const Region& region : regions) {
    COTUNE_RETURN_IF_ERROR(CheckRegion(graph, region, pieces));
    for (const size_t node : region.nodes) {
      if (taken.insert(node).second) continue;
      return Fail(ErrorCode::kUnsupported, "two regions have the same operation",
                  std::string(Name(graph.nodes()[node])));
    }
  }
  Levels levels(graph, inputs, regions);
  if (!levels.Assign()) return Fail(ErrorCode::kUnsupported, "the steps would wait for each other");
  RecipeMaker maker(graph, inputs);
  for (int level = 0; level <= levels.last(); ++level) {
    for (const Rows rows : {Rows::kOne, Rows::kAll, Rows::kShare}) {
      const std::vector<size_t> part = levels.PartAt(level, rows);
      for (const std::vector<size_t>& nodes : PartSplitter(graph, part).Split()) {
        COTUNE_RETURN_IF_ERROR(maker.Add(PartStep{}, nodes));
      }
    }
    for (const std::vector<size_t>& nodes : levels.BackendStepsAt(level)) {
      BackendStep work;
      work.collectives = CollectivesOf(graph, {nodes});
      // A step has its inputs in the order of values; the pieces have it, too.
      std::vector<size_t> ordered = nodes;
      if (work.is_bucket() && work.collectives.size() == nodes.size()) {
        std::sort(ordered.begin(), ordered.end(), [&](size_t a, size_t b) {
          return ValuesReadBy(graph.nodes()[a]) < ValuesReadBy(graph.nodes()[b]);
        });
        maker.Pack(ordered);
      }
      COTUNE_RETURN_IF_ERROR(maker.Add(std::move(work), ordered));
    }
  }
  Recipe recipe = maker.Finish();
  OutputReuse(recipe).Apply();
  return recipe;
}

Result<Recipe> MakeRecipe(const ProgramGraph& graph, std::span<const Region> regions) {
  return MakeRecipe(graph, InputMap::OfProgram(graph), regions);
}

Recipe UnfusedRecipe(const ProgramGraph& graph) {
  return UnfusedRecipe(graph, InputMap::OfProgram(graph));
}

Recipe UnfusedRecipe(const ProgramGraph& graph, const InputMap& inputs) {
  Result<Recipe> recipe = MakeRecipe(graph, inputs, {});
  COTUNE_CHECK(recipe.has_value(), "each step of a graph in its order reads earlier steps alone");
  return *std::move(recipe);
}

}  // namespace cotune
