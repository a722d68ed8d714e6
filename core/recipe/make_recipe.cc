#include "core/recipe/make_recipe.h"

#include <algorithm>
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

// The values that a node reads.
std::vector<ValueIndex> ReadBy(const ProgramNode& node) {
  if (const auto* collective = std::get_if<CollectiveNode>(&node)) return {collective->operand};
  std::vector<ValueIndex> values;
  for (const Operand& operand : std::get<ComputeNode>(node).operands) {
    if (!operand.is_literal()) values.push_back(operand.value);
  }
  return values;
}

// The nodes of a graph in groups: a region, a collective without a region, or a local operation.
// The steps are, level by level, the parts of the local operations with one kind of rows (one row,
// all, a share), and then the regions and collectives in order.
class Levels {
 public:
  Levels(const ProgramGraph& graph, std::span<const Region> regions) : graph_(graph) {
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
      if (level_of_[collective] != level) continue;
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
    for (const ValueIndex value : ReadBy(graph_.nodes()[node])) {
      if (graph_.is_input(value)) continue;
      const size_t source = static_cast<size_t>(value) - graph_.inputs().size();
      if (group_of_[source] == group_of_[node]) continue;
      level = std::max(level, level_of_[group_of_[source]] + (MayShare(source, node) ? 0 : 1));
    }
    return level;
  }

  // A node whose value overwrites an input comes after the readers of the input. It may stand in
  // one part with them, since a part reads a row of its inputs before it writes that row.
  int BehindReaders(size_t node) const {
    int level = 0;
    for (const ProgramOutput& output : graph_.outputs()) {
      if (output.value != graph_.value_of_node(node) || output.into < 0) continue;
      for (size_t reader = 0; reader < group_of_.size(); ++reader) {
        if (group_of_[reader] == group_of_[node]) continue;
        const std::vector<ValueIndex> read = ReadBy(graph_.nodes()[reader]);
        if (std::find(read.begin(), read.end(), output.into) == read.end()) continue;
        const bool is_same_part = !IsInBackendStep(reader) && RowsOf(reader) == RowsOf(node);
        const bool may_share = IsInBackendStep(node) ? MayShare(reader, node) : is_same_part;
        level = std::max(level, level_of_[group_of_[reader]] + (may_share ? 0 : 1));
      }
    }
    return level;
  }

  const ProgramGraph& graph_;
  // The group of each node, by the collective in it; a local operation outside of regions is one of
  // its own. Levels are those of the groups.
  std::vector<size_t> group_of_;
  std::vector<int> level_of_;
  int last_ = 0;
};

// Appends steps and gives each value its slot.
class RecipeMaker {
 public:
  explicit RecipeMaker(const ProgramGraph& graph) : graph_(graph), recipe_{graph, {}, {}} {
    const auto inputs = static_cast<SlotIndex>(graph.inputs().size());
    for (SlotIndex slot = 0; slot < inputs; ++slot) slots_[slot] = slot;
    for (size_t i = 0; i < graph.outputs().size(); ++i) {
      const ProgramOutput& output = graph.outputs()[i];
      slots_[output.value] = output.into >= 0 ? output.into : inputs + static_cast<SlotIndex>(i);
    }
    for (const ProgramNode& node : graph.nodes()) {
      for (const ValueIndex value : ReadBy(node)) ++readers_left_[value];
    }
  }

  // Adds a step that runs `nodes`; the steps that define its operands were added before.
  // kUnsupported: a region has more operands than a program may have.
  Status Add(std::variant<BackendStep, PartStep> work, const std::vector<size_t>& nodes) {
    const std::set<size_t> inside(nodes.begin(), nodes.end());
    std::map<ValueIndex, int> entering;  // and how many operands it is
    std::map<ValueIndex, int> read_inside;
    for (const size_t node : nodes) {
      for (const ValueIndex value : ReadBy(graph_.nodes()[node])) {
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
    const ProgramGraph own = graph_.Region(nodes, leaving);
    RecipeStep step{work, nodes, is_part ? own.Lower() : own, {}, {}};
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

  Recipe Finish() { return std::move(recipe_); }

 private:
  const ProgramOutput* OutputOf(ValueIndex value) const {
    for (const ProgramOutput& output : graph_.outputs()) {
      if (output.value == value) return &output;
    }
    return nullptr;
  }
  SlotIndex FirstTemporarySlot() const {
    return static_cast<SlotIndex>(graph_.inputs().size() + graph_.outputs().size());
  }
  SlotIndex SlotOf(ValueIndex value) const { return slots_.at(value); }

  SlotIndex Define(ValueIndex value) {
    const auto known = slots_.find(value);
    if (known != slots_.end()) return known->second;
    const SlotIndex slot =
        FirstTemporarySlot() + static_cast<SlotIndex>(recipe_.temporaries.size());
    recipe_.temporaries.push_back({value, recipe_.steps.size(), recipe_.steps.size()});
    slots_[value] = slot;
    return slot;
  }
  void Read(ValueIndex value, int operands) {
    readers_left_[value] -= operands;
    const SlotIndex temporary = SlotOf(value) - FirstTemporarySlot();
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
  OutputReuse(const ProgramGraph& graph, Recipe& recipe)
      : first_output_(static_cast<SlotIndex>(graph.inputs().size())),
        first_temporary_(first_output_ + static_cast<SlotIndex>(graph.outputs().size())),
        recipe_(recipe) {}

  void Apply() {
    for (size_t i = 0; i < recipe_.temporaries.size();) {
      const SlotIndex slot = first_temporary_ + static_cast<SlotIndex>(i);
      const std::optional<SlotIndex> output = Reuse(recipe_.temporaries[i].last_step, slot);
      if (!output) {
        ++i;
        continue;
      }
      Replace(slot, *output);
      recipe_.temporaries.erase(recipe_.temporaries.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

 private:
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
      const bool is_free = slot >= first_output_ && slot < first_temporary_ && output.into < 0;
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

  const SlotIndex first_output_;
  const SlotIndex first_temporary_;
  Recipe& recipe_;
};

}  // namespace

size_t CollectiveOf(const ProgramGraph& graph, const Region& region) {
  const auto found = std::find_if(region.nodes.begin(), region.nodes.end(),
                                  [&](size_t node) { return IsCollective(graph, node); });
  COTUNE_CHECK(found != region.nodes.end(), "a region has a collective");
  return *found;
}

namespace {

// Fails with kUnsupported if the local operation reads an input that keeps it out of regions.
Status CheckMayBeFused(const ProgramGraph& graph, size_t node) {
  for (const ValueIndex value : ReadBy(graph.nodes()[node])) {
    if (!graph.is_input(value) || !graph.inputs()[static_cast<size_t>(value)].is_never_fused) {
      continue;
    }
    return Fail(ErrorCode::kUnsupported, fmt::format("input %{} has the flag nofuse", value),
                std::string(Name(graph.nodes()[node])));
  }
  return {};
}

}  // namespace

Result<Recipe> MakeRecipe(const ProgramGraph& graph, std::span<const Region> regions) {
  std::set<size_t> taken;
  for (const Region& region : regions) {
    const auto is_collective = [&](size_t node) { return IsCollective(graph, node); };
    if (std::count_if(region.nodes.begin(), region.nodes.end(), is_collective) != 1) {
      return Fail(ErrorCode::kUnsupported, "a region has one collective");
    }
    for (const size_t node : region.nodes) {
      if (!IsCollective(graph, node)) COTUNE_RETURN_IF_ERROR(CheckMayBeFused(graph, node));
      if (taken.insert(node).second) continue;
      return Fail(ErrorCode::kUnsupported, "two regions have the same operation",
                  std::string(Name(graph.nodes()[node])));
    }
  }
  Levels levels(graph, regions);
  if (!levels.Assign()) return Fail(ErrorCode::kUnsupported, "the steps would wait for each other");
  RecipeMaker maker(graph);
  for (int level = 0; level <= levels.last(); ++level) {
    for (const Rows rows : {Rows::kOne, Rows::kAll, Rows::kShare}) {
      const std::vector<size_t> part = levels.PartAt(level, rows);
      if (!part.empty()) COTUNE_RETURN_IF_ERROR(maker.Add(PartStep{}, part));
    }
    for (const std::vector<size_t>& nodes : levels.BackendStepsAt(level)) {
      COTUNE_RETURN_IF_ERROR(maker.Add(BackendStep{CollectiveOf(graph, {nodes})}, nodes));
    }
  }
  Recipe recipe = maker.Finish();
  OutputReuse(graph, recipe).Apply();
  return recipe;
}

Recipe UnfusedRecipe(const ProgramGraph& graph) {
  Result<Recipe> recipe = MakeRecipe(graph, {});
  COTUNE_CHECK(recipe.has_value(), "each step of a graph in its order reads earlier steps alone");
  return *std::move(recipe);
}

}  // namespace cotune
