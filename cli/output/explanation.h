// Explains which choice runs for one call and why: pure, from a tuned database.
#ifndef COTUNE_CLI_OUTPUT_EXPLANATION_H_
#define COTUNE_CLI_OUTPUT_EXPLANATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/database/tuned_database.h"
#include "core/problem/tuning_settings.h"
#include "core/recipe/recipe_id.h"
#include "core/selection/dispatch_table.h"

namespace cotune::cli {

// The program that is asked about.
struct AskedProgram {
  std::string file;  // "" when it is not from one
  std::string text;  // as of ProgramText
  uint64_t rows = 0;
  bool has_rows = false;  // else the text fixes all sizes, and rows is 1
};

// The effect of the setting force_choice on the call that is asked about.
struct ForcedAnswer {
  std::string origin;                // where the user gave the setting
  std::optional<ChoiceId> choice{};  // that the call runs by it; nothing: it runs what it would run
  std::string refused{};  // a forced choice that a collective of the call does not run, and why
};

// The answer for one call.
struct Explanation {
  Problem asked;         // of a program: that of its anchor
  std::string database;  // its path

  // The range of the dispatch table; empty when the default choice runs, see `misses`.
  std::optional<SizeRange> range;
  // Which one that is, where it is known: the caller of Explain fills it in.
  std::optional<ChoiceId> fallback{};
  NumericsRule numerics = NumericsRule::kAny;  // likewise: that of the settings
  // Likewise: the flags of plugins and backends that the command had, such as " --backend host".
  std::string plugin_flags{};
  // Likewise; nullopt: none of its collectives is forced. The other members are about what it would
  // run without the setting.
  std::optional<ForcedAnswer> forced{};
  // Likewise; nullopt: a single collective is asked about.
  std::optional<AskedProgram> program{};
  // Likewise: the steps in which that choice runs the program.
  std::optional<RecipeInWords> recipe{};
  // The row by which the call runs, if it has none of its own.
  std::optional<DispatchKey> relative{};
  // The measured size nearest to what was asked for, with the winner that runs; of the relative, if
  // there is one.
  std::optional<DatabaseEntry> entry;

  // Further facts about `range`: that it is the one of a relative or of plain buffers, that nothing
  // of the asked size was measured.
  std::vector<std::string> notes;

  // Why there is nothing: one sentence a reason, most telling first.
  std::vector<std::string> misses;
};

// kDatabase when an entry cannot be read. A class asked for with root 0 is explained by any root.
Result<Explanation> Explain(const TunedDatabase& database, const std::string& database_path,
                            const Problem& asked, const Fingerprint& here);

// Why a choice of the entry that did not win has lost.
std::string WhyItLost(const DatabaseEntry& entry, const Verdict& verdict);

std::string ExplanationText(const Explanation& explanation);

// "" when no entry was measured while a GPU was throttled; else what to say of those that were.
std::string ThrottlingText(const std::vector<DatabaseEntry>& entries);

// "sizes from 1K, below 32K", "all sizes".
std::string RangeText(const SizeRange& range);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_OUTPUT_EXPLANATION_H_
