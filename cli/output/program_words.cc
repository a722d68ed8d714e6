#include "cli/output/program_words.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/counted.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "fusion/fusion_recipes.h"

namespace cotune::cli {
namespace {

// A heading is one line.
constexpr size_t kOperationsMax = 8;

// {"add", "16 x mul", "3 more"}: equal neighbours are counted, and what follows the first `most`.
std::vector<std::string> CountedOperations(const std::vector<std::string>& operations,
                                           size_t most) {
  std::vector<std::string> counted;
  for (size_t begin = 0; begin < operations.size();) {
    size_t end = begin + 1;
    while (end < operations.size() && operations[end] == operations[begin]) ++end;
    if (counted.size() == most) {
      counted.push_back(fmt::format("{} more", operations.size() - begin));
      break;
    }
    counted.push_back(end - begin > 1 ? fmt::format("{} x {}", end - begin, operations[begin])
                                      : operations[begin]);
    begin = end;
  }
  return counted;
}

// The shortest beginning of a list which the list repeats; of no repetition, the whole list.
size_t PeriodOf(const std::vector<std::string>& operations) {
  for (size_t period = 1; period < operations.size(); ++period) {
    if (operations.size() % period != 0) continue;
    bool repeats = true;
    for (size_t i = period; i < operations.size(); ++i) {
      repeats = repeats && operations[i] == operations[i - period];
    }
    if (repeats) return period;
  }
  return operations.size();
}

// "add + 16 x mul"; "16 x (copy + all_reduce + mul)" for a bucket with the operations of each
// collective.
std::string OperationsText(const std::vector<std::string>& operations) {
  const size_t period = PeriodOf(operations);
  if (period == 1 || period == operations.size()) {
    return fmt::format("{}", fmt::join(CountedOperations(operations, operations.size()), " + "));
  }
  const auto end = operations.begin() + static_cast<std::ptrdiff_t>(period);
  return fmt::format("{} x ({})", operations.size() / period,
                     fmt::join(operations.begin(), end, " + "));
}

std::string StepText(const StepInWords& step) {
  std::string text = OperationsText(step.operations);
  if (step.is_bucket) text += " as one";
  if (step.choice) text += " by " + step.choice->text();
  return text;
}

}  // namespace

std::string OpText(const ProgramNode& node) { return std::string(Name(node)); }

std::string RecipeText(const RecipeInWords& recipe) {
  std::string text;
  for (size_t begin = 0; begin < recipe.steps.size();) {
    const std::string step = StepText(recipe.steps[begin]);
    size_t end = begin + 1;
    while (end < recipe.steps.size() && StepText(recipe.steps[end]) == step) ++end;
    if (begin > 0) text += ", then ";
    if (end - begin > 1) text += fmt::format("{} times ", end - begin);
    text += step;
    begin = end;
  }
  return text;
}

std::string StepsAloneText(RecipeInWords recipe) {
  for (StepInWords& step : recipe.steps) step.choice.reset();
  return RecipeText(recipe);
}

std::optional<RecipeInWords> RecipeOf(const DatabaseEntry& entry, const ChoiceId& choice) {
  const std::optional<Program> program = ProgramOf(entry);
  if (!program || program->is_single_collective()) return std::nullopt;
  // An id has the same steps by either rule of numerics, and `same` refuses none that `any` has.
  const FusionRecipes recipes(NumericsRule::kSame);
  Result<RecipeInWords> recipe = InWords(recipes, program->graph(), choice);
  return recipe ? std::optional(*std::move(recipe)) : std::nullopt;
}

const std::optional<RecipeInWords>& WordedRecipes::Of(const DatabaseEntry& entry,
                                                      const ChoiceId& choice) {
  const auto [known, is_new] = known_.try_emplace(
      {entry.program_text, ToText(entry.cell.problem.cls), choice.text()}, std::nullopt);
  if (is_new) known->second = RecipeOf(entry, choice);
  return known->second;
}

std::string ProgramText(const ProgramGraph& graph) {
  std::vector<std::string> operations;
  for (const ProgramNode& node : graph.nodes()) operations.push_back(OpText(node));
  return fmt::format("{}: {}", ProgramText(graph.digest()),
                     fmt::join(CountedOperations(operations, kOperationsMax), " + "));
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
