#include "cli/output/program_words.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "core/base/counted.h"
#include "fmt/format.h"

namespace cotune::cli {
namespace {

// A heading is one line.
constexpr size_t kOperationsMax = 8;

}  // namespace

std::string OpText(const ProgramNode& node) { return std::string(Name(node)); }

std::string RecipeText(const RecipeInWords& recipe) {
  std::string text;
  for (const StepInWords& step : recipe.steps) {
    text += fmt::format("{}{}", text.empty() ? "" : ", then ", fmt::join(step.operations, " + "));
    if (step.choice) text += " by " + step.choice->text();
  }
  return recipe.via.empty() ? text : fmt::format("{} (the program as {})", text, recipe.via);
}

std::string ProgramText(const ProgramGraph& graph) {
  std::string text = ProgramText(graph.digest());
  const char* between = ": ";
  for (size_t i = 0; i < std::min(graph.nodes().size(), kOperationsMax); ++i) {
    text += between + OpText(graph.nodes()[i]);
    between = " + ";
  }
  if (graph.nodes().size() > kOperationsMax) {
    text += fmt::format(" + {} more", graph.nodes().size() - kOperationsMax);
  }
  return text;
}

std::string ProgramText(uint64_t digest) { return fmt::format("program {:016x}", digest); }

std::string CellText(const Program& program, const Problem& problem) {
  const ProgramGraph& graph = program.graph();
  std::string text =
      graph.name().empty() ? ProgramText(graph.digest()) : fmt::format("program {}", graph.name());
  if (!graph.has_rows()) return text;
  return fmt::format("{}, {}", text, Counted(static_cast<int64_t>(program.RowsAt(problem)), "row"));
}

std::optional<Program> ProgramOf(const DatabaseEntry& entry) {
  if (entry.program_text.empty()) return std::nullopt;
  const ProblemClass& cls = entry.cell.problem.cls;
  Result<ProgramGraph> graph = ProgramGraph::Parse(entry.program_text);
  if (!graph) return std::nullopt;
  Result<Program> program = Program::Bind(
      std::move(*graph), {cls.memory, cls.world_size, cls.ranks_per_node, cls.buffer_class});
  if (!program) return std::nullopt;
  return std::move(*program);
}

}  // namespace cotune::cli
