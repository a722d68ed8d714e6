// The commands, one source file each. Every one gives the exit code of the process.
#ifndef COTUNE_CLI_COMMANDS_COMMANDS_H_
#define COTUNE_CLI_COMMANDS_COMMANDS_H_

#include "cli/input/command_line.h"
#include "cli/session/process.h"

namespace cotune::cli {

int TuneCommand(const TuneFlags& flags, Process& process);
int BenchCommand(const BenchFlags& flags, Process& process);
int ExplainCommand(const ExplainFlags& flags, Process& process);
int PluginListCommand(const PluginListFlags& flags, Process& process);
int DbShowCommand(const DbShowFlags& flags, Process& process);
int DbMergeCommand(const DbMergeFlags& flags, Process& process);
int ConfigShowCommand(const ConfigShowFlags& flags, Process& process);
int ProgramCheckCommand(const ProgramCheckFlags& flags, Process& process);
int ProgramRecipesCommand(const ProgramRecipesFlags& flags, Process& process);
int DoctorCommand(const DoctorFlags& flags, Process& process);
int RunCommand(const RunFlags& flags, Process& process);
int VersionCommand(const VersionFlags& flags, Process& process);
int HelpCommand(const HelpFlags& flags, Process& process);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_COMMANDS_COMMANDS_H_
