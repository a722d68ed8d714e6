// The part that tune and bench share: read the settings, become a rank or start the ranks, join the
// job, tune.
#ifndef COTUNE_CLI_SESSION_RANK_SESSION_H_
#define COTUNE_CLI_SESSION_RANK_SESSION_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/input/command_line.h"
#include "cli/input/problem_selection.h"
#include "cli/output/reports.h"
#include "cli/session/job_memory.h"
#include "cli/session/process.h"
#include "integration/job.h"
#include "integration/settings/settings.h"
#include "integration/spawn.h"
#include "integration/tune_run.h"

namespace cotune::cli {

// Reads the settings and warns of unknown variables, once a job: not in ranks that this program
// started.
Result<ResolvedSettings> ReadSettings(const SettingFlags& flags, Process& process);

// Settings of backends that nobody could check.
void WarnOfSettings(const Job& job, Process& process);

// Options that every job of the command line has in common.
JobOptions MakeJobOptions(const ResolvedSettings& settings, const PluginFlags& plugins,
                          MemoryKind memory, const Process& process);

// The rank that this process is; nothing when no launcher started it. kUsage when --ranks says
// otherwise.
Result<std::optional<LaunchContext>> FindRank(int flag_ranks, const Process& process);

// Whether this process is the one that tells what concerns the whole job: the one that the user
// started, or rank 0 of a launcher. `context` as FindRank gives it.
bool SpeaksForJob(const std::optional<LaunchContext>& context, const Process& process);

// This program with its arguments, as it was started.
std::vector<std::string> SelfCommand(const Process& process);

// Starts this program again as ranks that tune, after loading the plugins here once: what fails on
// every rank alike is said once, before any rank is started. uses_database: as in RankWork. Gives
// the exit code.
int SpawnTune(int ranks, const ResolvedSettings& settings, const PluginFlags& plugins,
              const JobMemory& memory, bool uses_database, Process& process);

// Runs the ranks, and says their errors as they come, unless the request has another use for them.
Result<SpawnResult> SpawnAndListen(SpawnRequest request, Process& process);

// The part in which tune and bench differ.
struct RankWork {
  ProblemSelection selection;
  JobMemory memory;
  bool uses_database = false;  // else nothing is read or written
  bool force = false;
  std::string trace_path;  // "": no trace
};

// One rank of a tune, from joining to the end. `print` is called on rank 0 with what was found and
// the database's path; it gives the exit code.
using PrintReport =
    std::function<int(Job& job, const TuneReport& report, const std::string& database)>;
int TuneAsRank(const LaunchContext& context, const ResolvedSettings& settings,
               const PluginFlags& plugins, const RankWork& work, Process& process,
               const PrintReport& print);

TuneSummary Summarize(const TuneReport& report, const std::string& database);

// Returns whether no choice of the cell was tried, because no backend offers one.
bool IsRefused(const DecidedCell& cell);

// Why a tune that ran to its end is no success: a missed window, or cells where no choice works.
std::optional<Error> WhyIncomplete(const TuneReport& report);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_SESSION_RANK_SESSION_H_
