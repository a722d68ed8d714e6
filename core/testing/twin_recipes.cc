#include "core/testing/twin_recipes.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "core/recipe/recipe_id.h"

namespace cotune {
namespace {

// The program with the second of two twins left out; nothing if it has none, or if the value of the
// second is an output.
std::optional<ProgramGraph> WithoutTwin(const ProgramGraph& graph) {
  for (const size_t second : graph.collectives()) {
    for (const size_t first : graph.collectives()) {
      if (first >= second || !(graph.nodes()[first] == graph.nodes()[second])) continue;
      const ValueIndex kept = graph.value_of_node(first);
      const ValueIndex left_out = graph.value_of_node(second);
      const auto renamed = [&](ValueIndex value) {
        return value == left_out ? kept : value > left_out ? value - 1 : value;
      };
      ProgramParts parts{graph.name(), graph.inputs(), graph.nodes(), graph.outputs()};
      parts.nodes.erase(parts.nodes.begin() + static_cast<std::ptrdiff_t>(second));
      for (ProgramNode& node : parts.nodes) {
        if (auto* const collective = std::get_if<CollectiveNode>(&node)) {
          collective->operand = renamed(collective->operand);
          continue;
        }
        for (Operand& operand : std::get<ComputeNode>(node).operands) {
          if (!operand.is_literal()) operand.value = renamed(operand.value);
        }
      }
      for (ProgramOutput& output : parts.outputs) {
        if (output.value == left_out) return std::nullopt;
        output.value = renamed(output.value);
      }
      Result<ProgramGraph> made = ProgramGraph::Make(std::move(parts));
      if (made) return std::move(*made);
    }
  }
  return std::nullopt;
}

// The collective with the operation that reads its value, if just one does and reads nothing else.
std::optional<Region> WithReader(const ProgramGraph& graph, size_t collective) {
  const ValueIndex value = graph.value_of_node(collective);
  std::optional<Region> region;
  for (size_t node = 0; node < graph.nodes().size(); ++node) {
    if (const auto* const other = std::get_if<CollectiveNode>(&graph.nodes()[node])) {
      if (other->operand == value) return std::nullopt;
      continue;
    }
    const std::vector<Operand>& operands = std::get<ComputeNode>(graph.nodes()[node]).operands;
    const auto is_it = [&](const Operand& operand) { return operand.value == value; };
    if (std::none_of(operands.begin(), operands.end(), is_it)) continue;
    if (region || operands.size() != 1) return std::nullopt;
    region = Region{{collective, node}};
  }
  return region;
}

}  // namespace

FormList TwinRecipes::Forms(const Program& program, uint64_t /*rows*/,
                            const FusionRules& rules) const {
  FormList list{{FormWithoutRegions("", program.graph())}, {}};
  const auto once = WithoutTwin(program.graph());
  if (!once) {
    list.refusals.push_back({"via=once", "no two collectives are the same"});
  } else if (!rules.enabled) {
    list.refusals.push_back({"via=once", "collective fusion is off"});
  } else {
    list.forms.push_back(FormWithoutRegions("once", *once));
  }
  if (!with_regions_ || !rules.enabled) return list;
  for (Form& form : list.forms) {
    for (Position& position : form.positions) {
      if (const auto region = WithReader(form.graph, position.collectives.front())) {
        position.regions.push_back(*region);
      }
    }
  }
  return list;
}

Result<Recipe> TwinRecipes::RecipeOf(const ProgramGraph& graph, const ChoiceId& id) const {
  COTUNE_TRY(const std::string via, ViaOf(id));
  if (via.empty()) return RecipeByFuseKeys(graph, id);
  const auto once = via == "once" ? WithoutTwin(graph) : std::nullopt;
  if (once) return RecipeByFuseKeys(*once, id);
  return Fail(ErrorCode::kUnsupported, "the program has no such form", id.text());
}

}  // namespace cotune
