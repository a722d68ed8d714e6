#include "core/recipe/unfused_recipes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

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

// Assigns a level to each node: the steps are, level by level, the parts of the local operations
// with one kind of rows (one row, all, a share), and then the collectives in order.
class Levels {
 public:
  explicit Levels(const ProgramGraph& graph) : graph_(graph), levels_(graph.nodes().size()) {
    for (size_t node = 0; node < levels_.size(); ++node) {
      levels_[node] = std::max(BehindOperands(node), BehindReaders(node));
      last_ = std::max(last_, levels_[node]);
    }
  }

  int last() const { return last_; }
  std::vector<size_t> CollectivesAt(int level) const {
    std::vector<size_t> nodes;
    for (const size_t node : graph_.collectives()) {
      if (levels_[node] == level) nodes.push_back(node);
    }
    return nodes;
  }
  std::vector<size_t> PartAt(int level, Rows rows) const {
    std::vector<size_t> nodes;
    for (size_t node = 0; node < levels_.size(); ++node) {
      if (levels_[node] == level && !IsCollective(graph_, node) && RowsOf(node) == rows) {
        nodes.push_back(node);
      }
    }
    return nodes;
  }

 private:
  Rows RowsOf(size_t node) const { return graph_.type(graph_.value_of_node(node)).rows; }

  int BehindOperands(size_t node) const {
    int level = 0;
    for (const ValueIndex value : ReadBy(graph_.nodes()[node])) {
      if (graph_.is_input(value)) continue;
      const size_t source = static_cast<size_t>(value) - graph_.inputs().size();
      // The collectives of a level run behind its parts, in order.
      const bool is_later = IsCollective(graph_, source) && !IsCollective(graph_, node);
      level = std::max(level, levels_[source] + (is_later ? 1 : 0));
    }
    return level;
  }

  // A node whose value overwrites an input comes behind all that read the input. It may stand in
  // one part with them, since a part reads a row of its inputs before it writes that row.
  int BehindReaders(size_t node) const {
    int level = 0;
    for (const ProgramOutput& output : graph_.outputs()) {
      if (output.value != graph_.value_of_node(node) || output.into < 0) continue;
      for (size_t reader = 0; reader < node; ++reader) {
        const std::vector<ValueIndex> read = ReadBy(graph_.nodes()[reader]);
        if (std::find(read.begin(), read.end(), output.into) == read.end()) continue;
        const bool is_same_part = !IsCollective(graph_, reader) && RowsOf(reader) == RowsOf(node);
        const bool may_share = IsCollective(graph_, node) || is_same_part;
        level = std::max(level, levels_[reader] + (may_share ? 0 : 1));
      }
    }
    return level;
  }

  const ProgramGraph& graph_;
  std::vector<int> levels_;
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

  void AddCollective(size_t node) {
    const ValueIndex operand = std::get<CollectiveNode>(graph_.nodes()[node]).operand;
    RecipeStep step{.work = BackendStep{node}, .inputs = {SlotOf(operand)}, .outputs = {}};
    Read(operand, 1);
    step.outputs.push_back(Define(graph_.value_of_node(node)));
    recipe_.steps.push_back(std::move(step));
  }

  void AddPart(const std::vector<size_t>& nodes) {
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
    RecipeStep step{
        .work = PartStep{graph_.Region(nodes, leaving).Lower()}, .inputs = {}, .outputs = {}};
    for (const auto& [value, operands] : entering) {
      step.inputs.push_back(SlotOf(value));
      Read(value, operands);
    }
    for (const ProgramOutput& output : leaving) {
      step.outputs.push_back(Define(output.value));
      readers_left_[output.value] -= read_inside[output.value];
    }
    recipe_.steps.push_back(std::move(step));
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
  // The output that the step lets the temporary lie in, if there is one; the part then says that it
  // overwrites the temporary.
  std::optional<SlotIndex> Reuse(size_t last_step, SlotIndex temporary) {
    RecipeStep& step = recipe_.steps[last_step];
    auto* const found = std::get_if<PartStep>(&step.work);
    if (found == nullptr) return std::nullopt;
    ProgramGraph& part = found->program;
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
      // Refused where a later operation still reads the temporary.
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

Recipe UnfusedRecipe(const ProgramGraph& graph) {
  const Levels levels(graph);
  RecipeMaker maker(graph);
  for (int level = 0; level <= levels.last(); ++level) {
    for (const Rows rows : {Rows::kOne, Rows::kAll, Rows::kShare}) {
      const std::vector<size_t> part = levels.PartAt(level, rows);
      if (!part.empty()) maker.AddPart(part);
    }
    for (const size_t node : levels.CollectivesAt(level)) maker.AddCollective(node);
  }
  Recipe recipe = maker.Finish();
  OutputReuse(graph, recipe).Apply();
  return recipe;
}

std::vector<Form> UnfusedRecipes::Forms(const Program& program, uint64_t /*rows*/) const {
  std::vector<Form> forms;
  forms.push_back({"", UnfusedRecipe(program.graph())});
  return forms;
}

Result<Recipe> UnfusedRecipes::RecipeOf(const ProgramGraph& graph, const ChoiceId& id) const {
  for (const std::string_view key : kHostKeys) {
    const std::string value = id.HostKey(key);
    if (value.empty()) continue;
    return Fail(ErrorCode::kUnsupported, fmt::format("no recipe is known for {}={}", key, value),
                id.text());
  }
  return UnfusedRecipe(graph);
}

}  // namespace cotune
