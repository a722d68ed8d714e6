// `cotune program recipes`: the ways to cut a program into steps, with reasons; measures nothing.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/input/program_selection.h"
#include "cli/output/program_recipes_report.h"
#include "cli/session/lone_job.h"
#include "cli/session/rank_session.h"
#include "fmt/format.h"

namespace cotune::cli {
namespace {

// Names the values that no flag gave.
std::vector<std::string> AssumedTexts(const ProgramRecipesFlags& flags, int ranks, bool has_rows) {
  std::vector<std::string> texts;
  if (flags.ranks == 0) texts.push_back(fmt::format("--ranks is not given: {} ranks", ranks));
  if (has_rows && !flags.rows) {
    texts.push_back("--rows is not given: a row for each rank");
  }
  return texts;
}

Result<RecipesReport> ListRecipes(const ProgramRecipesFlags& flags, Process& process) {
  constexpr int kDefaultRanks = 4;
  const int ranks = flags.ranks == 0 ? kDefaultRanks : flags.ranks;
  COTUNE_TRY(const ResolvedSettings settings, ReadSettings(flags.settings, process));
  COTUNE_TRY(const JobMemory memory, ChooseMemory(settings, flags.plugins, process));
  COTUNE_TRY(const ProgramGraph graph, ReadProgramFile(flags.file));
  if (flags.rows && !graph.has_rows()) return tl::make_unexpected(NoRows(flags.file, "--rows"));
  std::optional<std::string> rows = flags.rows;
  if (!rows && graph.has_rows()) rows = fmt::format("{}", ranks);
  COTUNE_TRY(std::vector<ProgramSelection> selected,
             SelectPrograms({flags.file}, rows, {}, {memory.kind, ranks, ranks}));
  ProgramSelection& one = selected.front();
  if (one.sizes_bytes.size() != 1) {
    return Fail(ErrorCode::kUsage, "the recipes of one call are listed, and several are given",
                "--rows", "", "give one number");
  }
  if (one.program.is_single_collective()) {
    return Fail(ErrorCode::kUsage, "it is a single collective, which has no recipes", flags.file,
                "", "see `cotune explain COLLECTIVE SIZE DTYPE`");
  }
  COTUNE_TRY(const std::unique_ptr<Job> job, JoinAlone(settings, flags.plugins, memory, process));
  const Problem problem = one.program.ProblemAt(one.sizes_bytes.front(), 0);
  const ChoiceList list = job->ListChoices(one.program, problem);
  std::vector<ChoiceId> choices;
  for (const Choice& choice : list.choices) choices.push_back(choice.id);
  COTUNE_TRY(std::vector<ListedRecipe> recipes,
             GroupByRecipe(job->recipes(), one.program.graph(), choices));
  const uint64_t rows_of_call = one.program.RowsAt(problem);
  return RecipesReport{std::move(one.program), rows_of_call, std::move(recipes), list.refusals,
                       AssumedTexts(flags, ranks, graph.has_rows())};
}

}  // namespace

int ProgramRecipesCommand(const ProgramRecipesFlags& flags, Process& process) {
  Console& console = process.console;
  const Result<RecipesReport> report = ListRecipes(flags, process);
  if (!report) return console.PrintError(report.error());
  return console.PrintResult(console.flags().json ? ProgramRecipesJson(*report)
                                                  : ProgramRecipesText(*report));
}

}  // namespace cotune::cli
