// Finds flags that are given and have no effect.
#ifndef COTUNE_CLI_INPUT_FLAG_EFFECTS_H_
#define COTUNE_CLI_INPUT_FLAG_EFFECTS_H_

#include <string>
#include <vector>

#include "cli/input/command_line.h"
#include "core/base/status.h"

namespace cotune::cli {

// kUsage: a flag contradicts another one, or the arguments leave it without a meaning; the error
// names it. Pure: files and the machine are not looked at.
Status CheckFlagsAct(const CommandLine& line);

// A warning for each flag of a setting that the command does not use. They are no errors, because
// scripts give one list of settings to several commands.
std::vector<std::string> IdleSettings(const CommandLine& line);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_INPUT_FLAG_EFFECTS_H_
