// Tuned entries as JSON values; only the JSON sources include this.
#ifndef COTUNE_CLI_OUTPUT_JSON_ENTRY_H_
#define COTUNE_CLI_OUTPUT_JSON_ENTRY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "cli/output/program_words.h"
#include "core/backend/backend.h"
#include "core/database/tuned_database_entry.h"
#include "core/problem/problem.h"
#include "core/recipe/recipe_id.h"
#include "nlohmann/json_fwd.hpp"

namespace cotune::cli {

// Its text, or null.
nlohmann::ordered_json ChoiceIdJson(const std::optional<ChoiceId>& id);
// {"collective", "dtype", "reduction", ..., "bytes", "count"}.
nlohmann::ordered_json ProblemJson(const Problem& problem);
nlohmann::ordered_json RefusalsJson(const std::vector<Refusal>& refusals);
// The problem, its winner, every choice and every refusal, and where it was measured. `recipes` is
// that of the whole document.
nlohmann::ordered_json EntryJson(const DatabaseEntry& entry, WordedRecipes& recipes);
// The steps of a choice, or null.
nlohmann::ordered_json RecipeJson(const std::optional<RecipeInWords>& recipe);
// The rows of the table of winners.
nlohmann::ordered_json WinnersJson(const std::vector<DatabaseEntry>& entries);

double MicrosecondsJson(int64_t time_ns);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_OUTPUT_JSON_ENTRY_H_
