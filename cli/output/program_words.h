// The words by which tables, explanations and JSON name a program.
#ifndef COTUNE_CLI_OUTPUT_PROGRAM_WORDS_H_
#define COTUNE_CLI_OUTPUT_PROGRAM_WORDS_H_

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "core/database/tuned_database_entry.h"
#include "core/problem/choice_id.h"
#include "core/problem/program.h"
#include "core/recipe/recipe_id.h"

namespace cotune::cli {

// The name of a node's operation: "all_reduce", "rms_norm".
std::string OpText(const ProgramNode& node);

// "program 0123456789abcdef: 2 x all_reduce + add", the operations in the order of the text.
std::string ProgramText(const ProgramGraph& graph);
// The same with the digest alone, where the text of the program is not known.
std::string ProgramText(uint64_t digest);

// The steps of a recipe: "all_reduce by host/two_shot, then add + rms_norm"; with a bucket "16 x
// copy, then 16 x all_reduce as one by host/two_shot, then 16 x mul".
std::string RecipeText(const RecipeInWords& recipe);

// The same without the choices that run the steps.
std::string StepsAloneText(RecipeInWords recipe);

// The steps in which a choice of an entry runs its program; nullopt for a single collective, and
// where the text of the program is not known.
std::optional<RecipeInWords> RecipeOf(const DatabaseEntry& entry, const ChoiceId& choice);

// RecipeOf for many entries: sizes of one program that run by one choice have one recipe, which is
// made once. Made for one output.
class WordedRecipes {
 public:
  // Valid as long as this object.
  const std::optional<RecipeInWords>& Of(const DatabaseEntry& entry, const ChoiceId& choice);

 private:
  std::map<std::array<std::string, 3>, std::optional<RecipeInWords>> known_;
};

// One size of a program, by its name: "program tp_linear, 64 rows".
std::string CellText(const Program& program, const Problem& problem);

// The program of an entry, bound to its group; nullopt for a single collective, and where the text
// of the program is not known.
std::optional<Program> ProgramOf(const DatabaseEntry& entry);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_OUTPUT_PROGRAM_WORDS_H_
