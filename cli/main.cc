// The command line program.
#include <csignal>
#include <exception>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/console.h"

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
  int operator()(const RunFlags& flags) const { return RunCommand(flags, process); }
};

int Main(std::vector<std::string> arguments) {
  const Result<CommandLine> parsed = ParseCommandLine(arguments);
  const CommandLine line = parsed ? *parsed : GuessCommandLine(arguments);
  const bool log_is_terminal = IsCapableTerminal(stderr);
  Console console(stdout, stderr, line.command, line.output, log_is_terminal);
  if (!parsed) return console.PrintError(parsed.error());
  // A reader that leaves is an error to report, not a reason to vanish. A program that `run` starts
  // inherits what is set here, so there it stays.
  if (!std::holds_alternative<RunFlags>(line.flags)) std::signal(SIGPIPE, SIG_IGN);
  Process process{console, ProcessEnvironment(), std::move(arguments), log_is_terminal,
                  TerminalColumns(stderr)};
  return std::visit(Dispatch{process}, line.flags);
}

}  // namespace
}  // namespace cotune::cli

int main(int argc, char** argv) {
  // Libraries below may still throw, out of memory for one: that is an internal error with a
  // message.
  try {
    return cotune::cli::Main(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& exception) {
    cotune::cli::Console console(stdout, stderr, "", {}, false);
    return console.PrintError(
        {cotune::ErrorCode::kInternal, exception.what(), "main", "", "please report it", {}});
  }
}
