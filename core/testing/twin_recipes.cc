#include "core/testing/twin_recipes.h"

#include <optional>
#include <utility>
#include <variant>

#include "core/recipe/unfused_recipes.h"

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

}  // namespace

std::vector<Form> TwinRecipes::Forms(const Program& program, uint64_t /*rows*/) const {
  std::vector<Form> forms;
  forms.push_back({"", UnfusedRecipe(program.graph())});
  if (const auto once = WithoutTwin(program.graph())) {
    forms.push_back({"once", UnfusedRecipe(*once)});
  }
  return forms;
}

Result<Recipe> TwinRecipes::RecipeOf(const ProgramGraph& graph, const ChoiceId& id) const {
  const std::string via = id.HostKey("via");
  if (via.empty()) return UnfusedRecipe(graph);
  const auto once = via == "once" ? WithoutTwin(graph) : std::nullopt;
  if (once) return UnfusedRecipe(*once);
  return Fail(ErrorCode::kUnsupported, "the program has no such form", id.text());
}

}  // namespace cotune
