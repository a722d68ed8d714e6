// `cotune program recipes` shows the ways to cut a program into steps that a tune would measure.
#ifndef COTUNE_CLI_OUTPUT_PROGRAM_RECIPES_REPORT_H_
#define COTUNE_CLI_OUTPUT_PROGRAM_RECIPES_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/problem/choice_id.h"
#include "core/problem/program.h"
#include "core/recipe/recipe_id.h"
#include "core/recipe/recipe_source.h"

namespace cotune::cli {

// Choices that differ only in how their backend steps run.
struct ListedRecipe {
  std::string keys;  // the host's keys of the ids: "via=bucket", "fuse=1.2"; "": unfused
  RecipeInWords recipe;
  std::vector<ChoiceId> choices;
};

struct RecipesReport {
  Program program;
  uint64_t rows = 0;
  std::vector<ListedRecipe> recipes;
  std::vector<Refusal> refusals;
  std::vector<std::string> assumed{};  // a line for each value that no flag gave
};

// The recipes of these choices in the order of their first choice. Errors as
// RecipeSource::RecipeOf.
Result<std::vector<ListedRecipe>> GroupByRecipe(const RecipeSource& source,
                                                const ProgramGraph& graph,
                                                const std::vector<ChoiceId>& choices);

std::string ProgramRecipesText(const RecipesReport& report);
std::string ProgramRecipesJson(const RecipesReport& report);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_OUTPUT_PROGRAM_RECIPES_REPORT_H_
