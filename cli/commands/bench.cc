// `cotune bench`: measure every choice and print it; nothing is written.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/output/bench_table.h"
#include "cli/output/explanation.h"
#include "cli/output/json_output.h"
#include "cli/output/times_text.h"
#include "cli/session/rank_session.h"
#include "cli/session/trace_file.h"
#include "core/base/counted.h"
#include "core/database/tuned_database.h"
#include "fmt/format.h"
#include "integration/database_path.h"

namespace cotune::cli {
namespace {

// The table of the tuned database; empty when there is none in the usual place, or none that can be
// read, because then every call runs its default.
Result<DispatchTable> TunedTable(Job& job, const std::string& asked, Process& process) {
  COTUNE_TRY(const std::string path, DatabasePath(asked, process.environment, job.fingerprint()));
  const Result<TunedDatabase> database = TunedDatabase::Load(path);
  if (!database && !asked.empty()) return Propagate(database);
  if (!database) {
    const bool is_missing = database.error().code == ErrorCode::kEnvironment;
    if (!is_missing) process.console.Warn(database.error().ToText());
    return DispatchTable();
  }
  return database->BuildTable(job.world_size(), job.places().ranks_per_host(), job.fingerprint());
}

// Takes the cells that every backend refuses out of the report and returns a line about them; ""
// if there are none, or if nothing else is left, which is an error.
std::string TakeRefusedCells(TuneReport& report) {
  std::vector<DecidedCell>& cells = report.cells_without_winner;
  const auto first = std::find_if(cells.begin(), cells.end(), IsRefused);
  if (report.entries.empty() || first == cells.end()) return "";
  const size_t all = cells.size() + report.entries.size();
  const Error example = first->winner.error();
  const size_t refused = std::erase_if(cells, IsRefused);
  return fmt::format("{} of {} {} left out, such as {}: {}; -v lists each of them", refused,
                     Counted(static_cast<int64_t>(all), "cell"), refused == 1 ? "is" : "are",
                     example.where, example.cause);
}

int PrintBench(const BenchFlags& flags, const std::string& asked_database, Job& job,
               TuneReport report, Process& process) {
  Console& console = process.console;
  const Result<DispatchTable> tuned = TunedTable(job, asked_database, process);
  if (!tuned) return console.PrintError(tuned.error());
  TuneSummary summary = Summarize(report, "");
  const uint64_t wrong_elements = CountWrong(summary.entries);
  if (flags.tuned) {
    summary.entries = OnlyTuned(std::move(summary.entries), *tuned);
    for (const std::string& line : NotMeasured(summary.entries, *tuned)) console.Warn(line);
  }
  const int written = console.PrintResult(
      console.flags().json ? BenchJson(summary)
                           : BenchTableText(summary.entries, *tuned, flags.tuned));
  if (written != 0) return written;
  if (console.flags().verbose && !console.flags().quiet) {
    console.PrintLog(TimesText(summary.times));
  }
  if (const std::string text = TakeRefusedCells(report); !text.empty()) console.Warn(text);
  if (const std::string text = ThrottlingText(summary.entries); !text.empty()) console.Warn(text);
  const std::optional<Error> incomplete = WhyIncomplete(report);
  if (incomplete) {
    console.LogError(*incomplete);
    return ExitCode(incomplete->code);
  }
  if (wrong_elements == 0) return 0;
  console.LogError({ErrorCode::kWrongResult,
                    fmt::format("{} elements are wrong", wrong_elements),
                    "bench",
                    "a backend computes wrong values; it is never chosen",
                    "report it to the backend's author",
                    {}});
  return ExitCode(ErrorCode::kWrongResult);
}

}  // namespace

int BenchCommand(const BenchFlags& flags, Process& process) {
  Console& console = process.console;
  Result<ResolvedSettings> settings = ReadSettings(flags.settings, process);
  if (!settings) return console.PrintError(settings.error());
  // It measures every choice, and runs no call.
  settings->values.force = {};
  settings->values.neighbour_pruning = false;
  const Result<std::optional<LaunchContext>> context = FindRank(flags.ranks, process);
  if (!context) return console.PrintError(context.error());
  const Result<JobMemory> memory = ChooseMemory(*settings, flags.plugins, process);
  if (!memory) return console.PrintError(memory.error());
  const int spawned_ranks = flags.ranks == 0 ? DefaultRanks(*memory) : flags.ranks;
  const int world_size = *context ? (*context)->world_size : spawned_ranks;
  const Result<ProblemSelection> selection =
      SelectProblems(flags.problems, memory->kind, world_size,
                     settings->values.collective_multi_kernel_hints_bytes);
  if (!selection) return console.PrintError(selection.error());
  // Before anything is measured. Of ranks that a launcher has started, only the first one needs it.
  if (const std::string& asked = settings->values.database; !*context && !asked.empty()) {
    const Result<TunedDatabase> database = TunedDatabase::Load(asked);
    if (!database) return console.PrintError(database.error());
  }
  if (SpeaksForJob(*context, process)) console.Note(RoundingText(*selection));
  if (!*context) {
    if (const Status trace = CheckTraceFile(flags.trace); !trace) {
      return console.PrintError(trace.error());
    }
    return SpawnTune(spawned_ranks, *settings, flags.plugins, *memory, false, process);
  }
  return TuneAsRank(**context, *settings, flags.plugins,
                    RankWork{.selection = *selection, .memory = *memory, .trace_path = flags.trace},
                    process, [&](Job& job, const TuneReport& report, const std::string&) {
                      return PrintBench(flags, settings->values.database, job, report, process);
                    });
}

}  // namespace cotune::cli
