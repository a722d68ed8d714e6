// `cotune explain`: what runs for one call, and why.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/input/problem_selection.h"
#include "cli/input/program_selection.h"
#include "cli/output/explanation.h"
#include "cli/output/json_output.h"
#include "cli/output/program_words.h"
#include "cli/session/lone_job.h"
#include "cli/session/rank_session.h"
#include "core/choice/forced_collectives.h"
#include "core/recipe/recipe_id.h"
#include "fmt/format.h"
#include "integration/database_path.h"
#include "integration/missing_database.h"
#include "integration/settings/size_list.h"

namespace cotune::cli {
namespace {

// The flags as the user gave them, for a command that needs the same ones.
std::string FlagsText(const PluginFlags& flags) {
  std::string text;
  for (const std::string& backend : flags.backends) text += fmt::format(" --backend {}", backend);
  for (const std::string& plugin : flags.plugins) text += fmt::format(" --plugin {}", plugin);
  return text;
}

// The subject of the question: a program at one size, and the problem of its first collective.
struct Asked {
  Program program;
  Problem problem;
};

Result<Asked> AskedCollective(const ExplainFlags& flags, MemoryKind memory, int ranks,
                              std::string& rounding) {
  const std::pair<const char*, const std::string&> arguments[] = {
      {"COLLECTIVE", flags.collective}, {"SIZE", flags.size}, {"DTYPE", flags.dtype}};
  for (const auto& [name, value] : arguments) {
    if (!value.empty()) continue;
    return Fail(ErrorCode::kUsage, fmt::format("{} is required", name), "cotune explain", "",
                "write for example: cotune explain all_reduce 256K f32; or give --program FILE");
  }
  COTUNE_TRY(const Problem problem, SelectProblem(flags, memory, ranks, &rounding));
  COTUNE_TRY(Program program, Program::SingleCollective(problem.cls));
  return Asked{std::move(program), problem};
}

Result<Asked> AskedProgram(const ExplainFlags& flags, MemoryKind memory, int ranks) {
  std::string size = flags.collective;  // the first argument, as there is no collective
  if (ParseCollective(size)) {
    return Fail(ErrorCode::kUsage, "COLLECTIVE and --program exclude each other",
                "cotune explain --program", fmt::format("\"{}\" is given beside a program", size),
                "leave one of them out");
  }
  if (!flags.size.empty() || (!size.empty() && flags.rows)) {
    return Fail(ErrorCode::kUsage, "more is given than a program and its rows or size",
                "cotune explain --program", "", "write: cotune explain --program FILE --rows R");
  }
  std::vector<uint64_t> sizes;
  if (!size.empty()) {
    const Result<uint64_t> bytes = ParseSizeBytes(size);
    if (!bytes) {
      Error error = bytes.error();
      error.where = "SIZE, " + error.where;
      return tl::make_unexpected(std::move(error));
    }
    sizes = {*bytes};
  }
  COTUNE_TRY(const BufferClass buffers, SelectBufferClass(flags.buffers, memory));
  auto selected =
      SelectPrograms({flags.program}, flags.rows, sizes, {memory, ranks, ranks, buffers});
  if (!selected) {
    Error error = selected.error();
    const bool lacks_rows = error.code == ErrorCode::kUsage && error.where == flags.program &&
                            error.what.starts_with("no size") && !flags.rows;
    if (lacks_rows) {
      // As many rows as ranks have equal shares in every program.
      error.next_step =
          fmt::format("write: cotune explain --program {} --rows {}", flags.program, ranks);
    }
    return tl::make_unexpected(std::move(error));
  }
  ProgramSelection& one = selected->front();
  if (one.sizes_bytes.size() != 1) {
    return Fail(ErrorCode::kUsage, "one call is explained, and several numbers of rows are given",
                "--rows", "", "give one number");
  }
  if ((flags.rows || !size.empty()) && !AnyHasRows(*selected)) {
    return tl::make_unexpected(NoRows(flags.program, flags.rows ? "--rows" : "SIZE"));
  }
  const Problem problem = one.program.ProblemAt(one.sizes_bytes.front(), 0);
  return Asked{std::move(one.program), problem};
}

// The choice of a collective that is not forced, in a program in which others are.
Result<ChoiceId> UnforcedStep(const Job& job, const Asked& asked, const Explanation& explanation,
                              size_t place, const ChoiceList& list) {
  if (explanation.range) {
    const ChoiceId& winner = explanation.range->choice;
    const std::vector<ChoiceId> steps =
        ChoicesOfCollectives(asked.program.graph(), winner.WithoutHostKey(kFuseKey));
    if (!steps.empty() && !WhyNotListed(list, steps[place])) return steps[place];
  }
  const std::vector<Problem> collectives = CollectivesOf(asked.program, asked.problem);
  COTUNE_TRY(const Program single, Program::SingleCollective(collectives[place].cls));
  COTUNE_TRY(const Choice fallback, job.DefaultChoice(single, collectives[place]));
  return fallback.id;
}

// Finds what the setting force_choice makes of the call, as the ranks of its job would.
Result<std::optional<ForcedAnswer>> ForcedAnswerOf(const Job& job, const Asked& asked,
                                                   const Explanation& explanation) {
  const ForcedChoices& forced = job.settings().force;
  ForcedAnswer answer{.origin = job.force_origin()};
  std::vector<ChoiceId> steps;
  bool has_forced = false;
  bool runs_forced = false;
  const std::vector<Problem> collectives = CollectivesOf(asked.program, asked.problem);
  for (size_t place = 0; place < collectives.size(); ++place) {
    const Problem& each = collectives[place];
    const ChoiceId* const id = forced.Find(each.cls.collective);
    COTUNE_TRY(const Program single, Program::SingleCollective(each.cls));
    const ChoiceList list = job.ListChoices(single, each);
    has_forced = has_forced || id != nullptr;
    const auto why_not = id == nullptr ? std::nullopt : WhyNotListed(list, *id);
    if (why_not && answer.refused.empty()) {
      answer.refused = fmt::format("{}: {}", id->text(), *why_not);
    }
    if (id != nullptr && !why_not) {
      runs_forced = true;
      steps.push_back(*id);
      continue;
    }
    Result<ChoiceId> other = UnforcedStep(job, asked, explanation, place, list);
    // A call that no backend runs has no choice to be named.
    if (other) steps.push_back(*std::move(other));
  }
  if (!has_forced) return std::nullopt;
  if (runs_forced && steps.size() == collectives.size()) answer.choice = ChoiceId::Join(steps);
  return answer;
}

Result<Explanation> ExplainCall(const ExplainFlags& flags, Process& process) {
  COTUNE_TRY(const ResolvedSettings settings, ReadSettings(flags.settings, process));
  COTUNE_TRY(const JobMemory memory, ChooseMemory(settings, flags.plugins, process));
  int ranks = flags.ranks;
  if (ranks == 0) {
    // Beside the ranks of a job it is about that.
    const Result<std::optional<LaunchContext>> context = FindRank(0, process);
    ranks = context && *context ? (*context)->world_size : DefaultRanks(memory);
  }
  std::string rounding;
  COTUNE_TRY(const Asked asked_call, flags.program.empty()
                                         ? AskedCollective(flags, memory.kind, ranks, rounding)
                                         : AskedProgram(flags, memory.kind, ranks));
  const Problem* const problem = &asked_call.problem;
  process.console.Note(rounding);
  COTUNE_TRY(const std::unique_ptr<Job> job, JoinAlone(settings, flags.plugins, memory, process));
  COTUNE_RETURN_IF_ERROR(job->CheckForced(ranks));
  const Fingerprint& here = job->fingerprint();
  const std::string& asked = settings.values.database;
  COTUNE_TRY(const std::string path, DatabasePath(asked, process.environment, here));
  const std::string running_tune = RunningTuneText(path, "shown");
  Result<TunedDatabase> database = TunedDatabase::Load(path);
  const bool has_database = database.has_value();
  if (has_database) process.console.Note(running_tune);
  std::string unfinished_tune;
  if (!database) {
    // A machine that was never tuned is no error: the answer is that the default runs.
    const bool is_missing = asked.empty() && database.error().code == ErrorCode::kEnvironment;
    if (!is_missing) return tl::make_unexpected(ExplainMissing(database.error(), path));
    const UnfinishedTune tune = FindUnfinishedTune(path);
    unfinished_tune = tune.cause.empty() ? tune.next_step : tune.cause + "; " + tune.next_step;
    database = TunedDatabase();
  }
  Result<Explanation> explanation = Explain(*database, path, *problem, here);
  if (explanation) {
    explanation->numerics = settings.values.numerics;
    explanation->plugin_flags = FlagsText(flags.plugins);
    if (!has_database) {
      explanation->misses = {fmt::format("there is no tuned database yet ({})", path)};
    }
    if (!unfinished_tune.empty()) explanation->misses.push_back(unfinished_tune);
  }
  if (explanation && !flags.program.empty()) {
    const Program& program = asked_call.program;
    explanation->program = {flags.program, ProgramText(program.graph()), program.RowsAt(*problem),
                            program.graph().has_rows()};
  }
  if (!explanation) return explanation;
  if (!explanation->range) {
    // No choice can be named when no backend can run the call either.
    const Result<Choice> fallback = job->DefaultChoice(asked_call.program, *problem);
    if (fallback) explanation->fallback = fallback->id;
  }
  COTUNE_TRY(explanation->forced, ForcedAnswerOf(*job, asked_call, *explanation));
  std::optional<ChoiceId> runs =
      explanation->range ? explanation->range->choice : explanation->fallback;
  if (explanation->forced && explanation->forced->choice) runs = explanation->forced->choice;
  if (explanation->program && runs) {
    Result<RecipeInWords> recipe = InWords(job->recipes(), asked_call.program.graph(), *runs);
    if (recipe) {
      explanation->recipe = *std::move(recipe);
    } else {
      explanation->notes.push_back(
          fmt::format("its steps are not known here: {}", recipe.error().what));
    }
  }
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
