#include "cli/output/program_report.h"

#include <variant>
#include <vector>

#include "cli/output/json_entry.h"
#include "cli/output/json_output.h"
#include "cli/output/program_words.h"
#include "cli/output/text_table.h"
#include "core/recipe/make_recipe.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "nlohmann/json.hpp"

namespace cotune::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string RowsText(Rows rows) {
  switch (rows) {
    case Rows::kOne:
      return "1";
    case Rows::kAll:
      return "R";
    case Rows::kShare:
      return "R/n";
  }
  return "?";
}

std::string ShapeText(const ValueType& type) {
  return fmt::format("[{}, {}]", RowsText(type.rows), type.columns);
}

// The name of the operation that defines a value, or of the input.
std::string OriginText(const ProgramGraph& graph, ValueIndex value) {
  if (!graph.is_input(value)) return OpText(graph.node_of(value));
  const std::string& name = graph.inputs()[static_cast<size_t>(value)].name;
  return name.empty() ? "input" : "input " + name;
}

std::string OutputText(const ProgramGraph& graph, ValueIndex value) {
  for (const ProgramOutput& output : graph.outputs()) {
    if (output.value != value) continue;
    return output.into < 0 ? "yes" : fmt::format("into %{}", output.into);
  }
  return "";
}

// "all_reduce, part (add, mul)": the steps of the unfused recipe, in primitive operations.
std::vector<std::string> StepTexts(const ProgramGraph& graph) {
  std::vector<std::string> texts;
  for (const RecipeStep& step : UnfusedRecipe(graph).steps) {
    if (!step.is_part()) {
      texts.push_back(OpText(step.program.nodes().front()));
      continue;
    }
    std::vector<std::string> ops;
    for (const ProgramNode& node : step.program.nodes()) ops.push_back(OpText(node));
    texts.push_back(fmt::format("part ({})", fmt::join(ops, ", ")));
  }
  return texts;
}

}  // namespace

std::string ProgramReportText(const Program& program) {
  const ProgramGraph& graph = program.graph();
  std::string text = graph.name().empty() ? "" : fmt::format("program {}\n", graph.name());
  TextTable table({{"value"}, {"from"}, {"dtype"}, {"shape"}, {"replicated"}, {"output"}});
  for (ValueIndex value = 0; value < static_cast<ValueIndex>(graph.value_count()); ++value) {
    const ValueType& type = graph.type(value);
    table.AddRow({fmt::format("%{}", value), OriginText(graph, value),
                  std::string(Name(type.dtype)), ShapeText(type),
                  graph.is_replicated(value) ? "yes" : "", OutputText(graph, value)});
  }
  text += table.ToText(2);
  text += fmt::format("digest  {:016x}\n", graph.digest());
  text += fmt::format(
      "size    {}\n",
      graph.has_rows()
          ? fmt::format(
                "{} bytes of {} a row{}",
                program.ProblemAtRows(static_cast<uint64_t>(program.group().world_size), 0)
                        .bytes() /
                    static_cast<uint64_t>(program.group().world_size),
                Name(program.anchor().collective),
                graph.needs_whole_shares() ? "; R is a multiple of the number of ranks" : "")
          : fmt::format("{} bytes, fixed", program.ProblemAtRows(1, 0).bytes()));
  text += fmt::format("steps   {}\n\n", fmt::join(StepTexts(graph), "; "));
  return text + graph.ToText();
}

std::string ProgramReportJson(const Program& program) {
  const ProgramGraph& graph = program.graph();
  Json values = Json::array();
  for (ValueIndex value = 0; value < static_cast<ValueIndex>(graph.value_count()); ++value) {
    const ValueType& type = graph.type(value);
    const bool is_never_fused =
        graph.is_input(value) && graph.inputs()[static_cast<size_t>(value)].is_never_fused;
    values.push_back({{"from", OriginText(graph, value)},
                      {"dtype", Name(type.dtype)},
                      {"rows", RowsText(type.rows)},
                      {"columns", type.columns},
                      {"is_replicated", graph.is_replicated(value)},
                      {"is_never_fused", is_never_fused}});
  }
  Json outputs = Json::array();
  for (const ProgramOutput& output : graph.outputs()) {
    outputs.push_back({{"value", output.value}, {"into", output.into}});
  }
  return Document("program check", "result",
                  {{"name", graph.name()},
                   {"digest", fmt::format("{:016x}", graph.digest())},
                   {"has_rows", graph.has_rows()},
                   {"needs_whole_shares", graph.needs_whole_shares()},
                   {"values", values},
                   {"outputs", outputs},
                   {"steps", StepTexts(graph)},
                   {"text", graph.ToText()}});
}

}  // namespace cotune::cli
