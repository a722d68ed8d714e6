// `cotune run`: start any program as several ranks.
#include "cli/commands.h"
#include "cli/rank_session.h"

namespace cotune::cli {

int RunCommand(const RunFlags& flags, Process& process) {
  Console& console = process.console;
  const Result<ResolvedSettings> settings = ReadSettings(flags.settings, process);
  if (!settings) return console.PrintError(settings.error());
  const Result<std::optional<LaunchContext>> context = FindRank(0, process);
  if (!context) return console.PrintError(context.error());
  if (*context) {
    return console.PrintError({ErrorCode::kUsage,
                               "cotune run inside a launcher",
                               "launcher " + (*context)->launcher,
                               "the launcher has started this process as a rank already",
                               "start the program itself under the launcher",
                               {}});
  }
  const Result<JobMemory> memory = ChooseMemory(*settings, {}, process);
  if (!memory) return console.PrintError(memory.error());
  const int ranks = flags.ranks == 0 ? DefaultRanks(*memory) : flags.ranks;
  SpawnRequest request;
  request.command = flags.program;
  request.ranks = ranks;
  request.grace_ns = 2 * settings->values.collective_autotune_timeout_ns;
  return SpawnAndReport(request, process);
}

}  // namespace cotune::cli
