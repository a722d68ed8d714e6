// The commands, one source file each. Every one gives the exit code of the process.
#ifndef COTUNE_CLI_COMMANDS_H_
#define COTUNE_CLI_COMMANDS_H_

#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/console.h"
#include "integration/launch_context.h"

namespace cotune::cli {

// What a command sees of its process.
struct Process {
  Console& console;
  Environment environment;
  std::vector<std::string> arguments;  // without the program's name
  bool log_is_terminal = false;        // progress may be redrawn
  size_t log_columns = 80;
};

int TuneCommand(const TuneFlags& flags, Process& process);
int BenchCommand(const BenchFlags& flags, Process& process);
int ExplainCommand(const ExplainFlags& flags, Process& process);
int PluginListCommand(const PluginListFlags& flags, Process& process);
int DbShowCommand(const DbShowFlags& flags, Process& process);
int DbMergeCommand(const DbMergeFlags& flags, Process& process);
int ConfigShowCommand(const ConfigShowFlags& flags, Process& process);
int DoctorCommand(const DoctorFlags& flags, Process& process);
int RunCommand(const RunFlags& flags, Process& process);
int VersionCommand(const VersionFlags& flags, Process& process);
int HelpCommand(const HelpFlags& flags, Process& process);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_COMMANDS_H_
