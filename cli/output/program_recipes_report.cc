#include "cli/output/program_recipes_report.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "cli/output/json_output.h"
#include "cli/output/program_words.h"
#include "cli/output/refusal_groups.h"
#include "cli/output/text_table.h"
#include "core/base/counted.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "nlohmann/json.hpp"

namespace cotune::cli {
namespace {

using Json = nlohmann::ordered_json;

// "fuse=1.2", "via=bucket"; of steps that differ "fuse=1 + -".
std::string KeysOf(const ChoiceId& id) {
  std::vector<std::string> steps;
  for (const ChoiceId& step : id.steps()) {
    std::vector<std::string> keys;
    for (const std::string_view key : kHostKeys) {
      const std::string value = step.HostKey(key);
      if (!value.empty()) keys.push_back(fmt::format("{}={}", key, value));
    }
    steps.push_back(fmt::format("{}", fmt::join(keys, "&")));
  }
  const bool are_equal = std::all_of(
      steps.begin(), steps.end(), [&](const std::string& each) { return each == steps.front(); });
  if (are_equal) return steps.front();
  for (std::string& step : steps) {
    if (step.empty()) step.push_back('-');
  }
  return fmt::format("{}", fmt::join(steps, " + "));
}

}  // namespace

Result<std::vector<ListedRecipe>> GroupByRecipe(const RecipeSource& source,
                                                const ProgramGraph& graph,
                                                const std::vector<ChoiceId>& choices) {
  std::vector<ListedRecipe> recipes;
  for (const ChoiceId& choice : choices) {
    std::string keys = KeysOf(choice);
    const auto known = std::find_if(recipes.begin(), recipes.end(),
                                    [&](const ListedRecipe& each) { return each.keys == keys; });
    if (known != recipes.end()) {
      known->choices.push_back(choice);
      continue;
    }
    COTUNE_TRY(RecipeInWords words, InWords(source, graph, choice));
    recipes.push_back({std::move(keys), std::move(words), {choice}});
  }
  return recipes;
}

std::string ProgramRecipesText(const RecipesReport& report) {
  const Program& program = report.program;
  std::string text =
      fmt::format("{}: {} of {} memory\n", CellText(program, program.ProblemAtRows(report.rows, 0)),
                  Counted(program.group().world_size, "rank"), Name(program.group().memory));
  for (const std::string& assumed : report.assumed) text += fmt::format("  {}\n", assumed);
  text += '\n';
  TextTable table({{"recipe"}, {"choices", Align::kRight}, {"steps"}});
  for (const ListedRecipe& recipe : report.recipes) {
    table.AddRow({recipe.keys.empty() ? "unfused" : recipe.keys,
                  fmt::format("{}", recipe.choices.size()), StepsAloneText(recipe.recipe)});
  }
  text += table.ToText(2);
  if (!report.refusals.empty()) text += "\nleft out\n";
  for (const RefusalGroup& group : GroupByReason(report.refusals)) {
    text += fmt::format("  {}: {}\n", group.choices, group.reason);
  }
  return text;
}

std::string ProgramRecipesJson(const RecipesReport& report) {
  Json recipes = Json::array();
  for (const ListedRecipe& recipe : report.recipes) {
    Json choices = Json::array();
    for (const ChoiceId& choice : recipe.choices) choices.push_back(choice.text());
    Json steps = Json::array();
    for (const StepInWords& step : recipe.recipe.steps) {
      steps.push_back({{"operations", step.operations},
                       {"is_bucket", step.is_bucket},
                       {"is_part", !step.choice}});
    }
    recipes.push_back({{"keys", recipe.keys}, {"steps", steps}, {"choices", choices}});
  }
  Json refusals = Json::array();
  for (const Refusal& refusal : report.refusals) {
    refusals.push_back({{"choice", refusal.choice}, {"reason", refusal.reason}});
  }
  return Document("program recipes", "result",
                  {{"name", report.program.graph().name()},
                   {"world_size", report.program.group().world_size},
                   {"rows", report.rows},
                   {"recipes", recipes},
                   {"left_out", refusals}});
}

}  // namespace cotune::cli
