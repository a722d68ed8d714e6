// `cotune tune`: measure, agree, write the tuned database, print the winners.
#include <optional>
#include <string>

#include "cli/commands/commands.h"
#include "cli/output/explanation.h"
#include "cli/output/json_output.h"
#include "cli/output/number_text.h"
#include "cli/output/times_text.h"
#include "cli/output/winner_table.h"
#include "cli/session/rank_session.h"
#include "cli/session/trace_file.h"
#include "core/base/counted.h"
#include "fmt/format.h"

namespace cotune::cli {
namespace {

int PrintTune(const TuneReport& report, const JobMemory& memory, int local_ranks,
              const std::string& database, Process& process) {
  Console& console = process.console;
  const TuneSummary summary = Summarize(report, database);
  const int written = console.PrintResult(console.flags().json ? TuneJson(summary)
                                                               : WinnerTableText(summary.entries));
  if (written != 0) return written;
  if (!console.flags().quiet) {
    std::string others;
    if (summary.forced_cells > 0) others += fmt::format(", {} forced", summary.forced_cells);
    if (summary.cells_without_winner > 0) {
      others += fmt::format(", {} that no choice runs", summary.cells_without_winner);
    }
    console.PrintLog(fmt::format("{} measured, {} known, {} skipped{} in {:.1f} s; {} {}\n",
                                 summary.measured_cells, summary.known_cells, summary.skipped_cells,
                                 others, static_cast<double>(summary.elapsed_ns) / 1e9,
                                 report.save_failure ? "not saved to"
                                 : report.saved      ? "saved"
                                                     : "database",
                                 database));
  }
  if (console.flags().verbose && !console.flags().quiet) {
    console.PrintLog(TimesText(summary.times));
  }
  if (summary.skipped_cells > 0) {
    console.Warn(
        fmt::format("the budget was used up before {}; raise --budget and run again to continue",
                    Counted(summary.skipped_cells, "cell")));
  }
  if (summary.measured_cells > 0) console.Note(SharedProcessorsText(memory, local_ranks));
  if (summary.unsteady_cells > 0) {
    console.Warn(fmt::format(
        "{} of {} {} unsteady: there the default choice runs, and the next tune measures again. "
        "Tune while the machine is idle, with a larger --budget if one ended a measurement, or "
        "believe times that vary by --keep-unsteady on",
        summary.unsteady_cells, Counted(summary.measured_cells, "measured cell"),
        summary.unsteady_cells == 1 ? "is" : "are"));
  }
  if (const std::string text = ThrottlingText(summary.entries); !text.empty()) console.Warn(text);
  const std::optional<Error> incomplete = WhyIncomplete(report);
  if (!incomplete) return 0;
  console.LogError(*incomplete);
  return ExitCode(incomplete->code);
}

}  // namespace

int TuneCommand(const TuneFlags& flags, Process& process) {
  Console& console = process.console;
  const Result<ResolvedSettings> settings = ReadSettings(flags.settings, process);
  if (!settings) return console.PrintError(settings.error());
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
  if (SpeaksForJob(*context, process)) {
    console.Note(RoundingText(*selection));
    if (world_size == 1 && !selection->classes.empty()) {
      console.Note("one rank exchanges nothing, so that only copies are measured; " +
                   (*context ? LeftOverText(**context) : "see --ranks"));
    }
  }
  if (!*context) {
    if (const Status trace = CheckTraceFile(flags.trace); !trace) {
      return console.PrintError(trace.error());
    }
    return SpawnTune(spawned_ranks, *settings, flags.plugins, *memory, process);
  }
  const RankWork work{.selection = *selection,
                      .memory = *memory,
                      .uses_database = true,
                      .force = flags.force,
                      .trace_path = flags.trace};
  return TuneAsRank(**context, *settings, flags.plugins, work, process,
                    [&](Job& job, const TuneReport& report, const std::string& database) {
                      // A launcher may give each rank processors of its own.
                      const bool has_launcher = SpeaksForJob(*context, process);
                      const int own_ranks = has_launcher ? 0 : job.places().ranks_per_host();
                      return PrintTune(report, *memory, own_ranks, database, process);
                    });
}

}  // namespace cotune::cli
