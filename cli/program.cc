#include "cli/program.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/input/command_line.h"
#include "cli/input/flag_effects.h"
#include "cli/output/console.h"
#include "cli/session/last_resort.h"
#include "cli/session/rank_session.h"
#include "integration/launch_context.h"
#include "integration/multicast_switches.h"
#include "integration/spawn.h"

namespace cotune::cli {
namespace {

// One overload a command.
struct Dispatch {
  Process& process;
  int operator()(const HelpFlags& flags) const { return HelpCommand(flags, process); }
  int operator()(const VersionFlags& flags) const { return VersionCommand(flags, process); }
  int operator()(const TuneFlags& flags) const { return TuneCommand(flags, process); }
  int operator()(const BenchFlags& flags) const { return BenchCommand(flags, process); }
  int operator()(const ExplainFlags& flags) const { return ExplainCommand(flags, process); }
  int operator()(const PluginListFlags& flags) const { return PluginListCommand(flags, process); }
  int operator()(const DbShowFlags& flags) const { return DbShowCommand(flags, process); }
  int operator()(const DbMergeFlags& flags) const { return DbMergeCommand(flags, process); }
  int operator()(const ConfigShowFlags& flags) const { return ConfigShowCommand(flags, process); }
  int operator()(const ProgramCheckFlags& flags) const {
    return ProgramCheckCommand(flags, process);
  }
  int operator()(const ProgramRecipesFlags& flags) const {
    return ProgramRecipesCommand(flags, process);
  }
  int operator()(const DoctorFlags& flags) const { return DoctorCommand(flags, process); }
  int operator()(const RunFlags& flags) const { return RunCommand(flags, process); }
};

// In this process, which may be a rank, and in all that it starts. What the user had set otherwise
// is said once a job.
void SwitchMulticastOff(const CommandFlags& flags, Process& process) {
  KeepMulticastOff();
  const std::string overridden = OverriddenSwitchesText(process.environment);
  const bool loads_nothing =
      std::holds_alternative<HelpFlags>(flags) || std::holds_alternative<VersionFlags>(flags);
  if (overridden.empty() || loads_nothing) return;
  const Result<std::optional<LaunchContext>> context =
      DetectLaunchContext(process.environment, getppid());
  if (!context || !*context || (*context)->rank == 0) process.console.Warn(overridden);
}

// Ranks that a command starts get its arguments, and the warnings are the job's.
void WarnOfIdleSettings(const CommandLine& line, Process& process) {
  const Result<std::optional<LaunchContext>> context = FindRank(0, process);
  if (context && !SpeaksForJob(*context, process)) return;
  for (const std::string& warning : IdleSettings(line)) process.console.Warn(warning);
}

// A rank that this program started tells its errors to the process that started it.
void UseErrorPipe(Process& process) {
  const auto variable = process.environment.find(kErrorPipeVariable);
  if (variable == process.environment.end() || variable->second.empty()) return;
  char* end = nullptr;
  const auto fd = static_cast<int>(std::strtol(variable->second.c_str(), &end, 10));
  struct stat status {};
  if (*end != '\0' || fstat(fd, &status) != 0 || !S_ISFIFO(status.st_mode)) return;
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  process.console.set_error_pipe(fd);
}

// Tells the process that started this rank, if one of this program did, that the rank ends by
// itself: its exit code is not that of a plugin which calls exit().
void SayDone(const Console& console) {
  if (console.error_pipe() < 0) return;
  // A message that cannot be written has no reader.
  [[maybe_unused]] const ssize_t written =
      write(console.error_pipe(), kDoneWord, sizeof(kDoneWord));
}

int RunCommandLine(std::vector<std::string> arguments, Environment environment,
                   MakeRankListener make_listener) {
  const Result<CommandLine> parsed = ParseCommandLine(arguments);
  const CommandLine line = parsed ? *parsed : GuessCommandLine(arguments);
  const bool log_is_terminal = IsCapableTerminal(stderr);
  Console console(stdout, stderr, line.command, line.output, log_is_terminal);
  if (!parsed) return console.PrintError(parsed.error());
  if (const Status acts = CheckFlagsAct(line); !acts) return console.PrintError(acts.error());
  // A reader that leaves ends no tune: its database is still written. A program that `run` starts
  // inherits what is set here, so there it stays.
  if (!std::holds_alternative<RunFlags>(line.flags)) std::signal(SIGPIPE, SIG_IGN);
  Process process{console,         std::move(environment),  std::move(arguments),
                  log_is_terminal, TerminalColumns(stderr), std::move(make_listener)};
  UseErrorPipe(process);
  // `run` loads no plugin; signals of the program that it starts are that program's.
  if (!std::holds_alternative<RunFlags>(line.flags)) CatchCrashes(console);
  SwitchMulticastOff(line.flags, process);
  WarnOfIdleSettings(line, process);
  const int exit_code = std::visit(Dispatch{process}, line.flags);
  SayDone(console);
  return exit_code;
}

}  // namespace

int Main(int argc, char** argv, Environment environment, MakeRankListener make_listener) {
  // Libraries below may still throw, out of memory for one: that is an internal error with a
  // message.
  const auto fail = [](const char* what) {
    Console console(stdout, stderr, "", {}, false);
    return console.PrintError({ErrorCode::kInternal, what, "main", "", "please report it", {}});
  };
  try {
    return RunCommandLine(std::vector<std::string>(argv + 1, argv + argc), std::move(environment),
                          std::move(make_listener));
  } catch (const std::exception& exception) {
    return fail(exception.what());
  } catch (...) {
    return fail("an exception that is no std::exception");
  }
}

}  // namespace cotune::cli
