// Finds flags that are given and have no effect.
#ifndef COTUNE_CLI_INPUT_FLAG_EFFECTS_H_
#define COTUNE_CLI_INPUT_FLAG_EFFECTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/input/command_line.h"
#include "core/base/status.h"

namespace cotune::cli {

// kUsage: a flag contradicts another one, or the arguments leave it without a meaning; the error
// names it. Pure: files and the machine are not looked at.
Status CheckFlagsAct(const CommandLine& line);

// The part of a command that a setting acts on.
enum class SettingUse : uint8_t {
  kMeasuring,      // a race
  kPruning,        // which choices race
  kCalls,          // a call into a plugin, which may not return
  kCheckingCalls,  // calls of NCCL
  kForms,          // which choices and forms are listed; measurements by other rules do not count
  kThreshold,      // which form wins; measurements with another threshold do not count
  kForcing,        // the choice of a call
  kDatabase,
  kPlugins,  // which plugins are loaded, and for which memory
  kLinking,  // a group of a program that links cotune
};

// By the name of the setting, not of an alias. nullopt: there is no such setting.
std::optional<SettingUse> UseOfSetting(std::string_view setting);

// A warning for each flag of a setting that the command does not use. They are no errors, because
// scripts give one list of settings to several commands.
std::vector<std::string> IdleSettings(const CommandLine& line);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_INPUT_FLAG_EFFECTS_H_
