// `cotune explain`: what runs for one call, and why.
#include <memory>
#include <string>

#include "cli/commands/commands.h"
#include "cli/input/problem_selection.h"
#include "cli/output/explanation.h"
#include "cli/output/json_output.h"
#include "cli/session/lone_job.h"
#include "cli/session/rank_session.h"
#include "integration/database_path.h"

namespace cotune::cli {
namespace {

Result<Explanation> ExplainCall(const ExplainFlags& flags, Process& process) {
  const Result<ResolvedSettings> settings = ReadSettings(flags.settings, process);
  if (!settings) return Propagate(settings);
  const Result<JobMemory> memory = ChooseMemory(*settings, flags.plugins, process);
  if (!memory) return Propagate(memory);
  int ranks = flags.ranks;
  if (ranks == 0) {
    // Beside the ranks of a job it is about that.
    const Result<std::optional<LaunchContext>> context = FindRank(0, process);
    ranks = context && *context ? (*context)->world_size : DefaultRanks(*memory);
  }
  std::string rounding;
  const Result<Problem> problem = SelectProblem(flags, memory->kind, ranks, &rounding);
  if (!problem) return Propagate(problem);
  process.console.Note(rounding);
  const Result<std::unique_ptr<Job>> job = JoinAlone(*settings, flags.plugins, *memory, process);
  if (!job) return Propagate(job);
  const Fingerprint& here = (*job)->fingerprint();
  const std::string& asked = settings->values.database;
  const Result<std::string> path = DatabasePath(asked, process.environment, here);
  if (!path) return Propagate(path);
  Result<TunedDatabase> database = TunedDatabase::Load(*path);
  if (!database) {
    // A machine that was never tuned is no error: the answer is that the default runs.
    const bool is_missing = asked.empty() && database.error().code == ErrorCode::kEnvironment;
    if (!is_missing) return Propagate(database);
    database = TunedDatabase();
  }
  Result<Explanation> explanation = Explain(*database, *path, *problem, here);
  if (!explanation || explanation->range) return explanation;
  const Result<Program> program = Program::SingleCollective(problem->cls);
  if (!program) return Propagate(program);
  // No choice can be named when no backend can run the call either.
  const Result<Choice> fallback = (*job)->DefaultChoice(*program, *problem);
  if (fallback) explanation->fallback = fallback->id;
  return explanation;
}

}  // namespace

int ExplainCommand(const ExplainFlags& flags, Process& process) {
  Console& console = process.console;
  const Result<Explanation> explanation = ExplainCall(flags, process);
  if (!explanation) return console.PrintError(explanation.error());
  return console.PrintResult(console.flags().json ? ExplainJson(*explanation)
                                                  : ExplanationText(*explanation));
}

}  // namespace cotune::cli
