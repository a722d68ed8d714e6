// Every setting, declared once: name, type, limits and help.
#ifndef COTUNE_INTEGRATION_SETTINGS_SETTING_TABLE_H_
#define COTUNE_INTEGRATION_SETTINGS_SETTING_TABLE_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/status.h"
#include "core/problem/tuning_settings.h"

namespace cotune {

// The value of every setting.
struct SettingValues : TuningSettings {
  std::string memory = "auto";  // "host", "cuda", or what this machine has
  std::string plugin_path;      // folders with plugins, separated by ':'
  std::string database;         // file; empty: the default place of this machine
  bool load_database = true;    // by programs, when they create a group
  // A process of the user's ends when a call into a plugin never returns. Ranks of the command line
  // always do.
  bool exit_when_stuck = false;
  bool check_calls = false;  // by backends whose library does not do so itself
};

// The member that holds a setting's value, of SettingValues or of its FusionRules; the type of the
// member is the type of the setting: duration (int64_t, ns), whole number, switch, number, list of
// sizes (bytes), text, rule of numerics, set of kinds of fusion (uint8_t), forced choices.
using SettingMember =
    std::variant<int64_t SettingValues::*, int32_t SettingValues::*, bool SettingValues::*,
                 double SettingValues::*, std::vector<uint64_t> SettingValues::*,
                 std::string SettingValues::*, NumericsRule SettingValues::*,
                 int32_t FusionRules::*, bool FusionRules::*, double FusionRules::*,
                 uint8_t FusionRules::*, ForcedChoices SettingValues::*>;

struct SettingSpec {
  std::string_view name;  // key in a file
  SettingMember member;
  double minimum = 0;  // of numbers and durations (ns); both ends are allowed
  double maximum = 0;
  std::string_view help;
};

// A second name of a setting. File, environment and flags take it as they take the first one. Both
// names with different values, from whichever sources, are an error.
struct SettingAlias {
  std::string_view name;
  std::string_view setting;  // name of the setting
};

std::span<const SettingSpec> AllSettings();
std::span<const SettingAlias> AllAliases();
// By its name or by an alias; nullptr when there is no such setting.
const SettingSpec* FindSetting(std::string_view name);
std::vector<std::string_view> AliasesOf(const SettingSpec& spec);
// The help of a setting and its aliases.
std::string HelpText(const SettingSpec& spec);

// "COTUNE_MIN_ROUNDS" and "--min-rounds" for min_rounds; also for an alias.
std::string VariableName(std::string_view name);
std::string FlagName(std::string_view name);
// "duration", "whole number", "on or off", "number", "sizes", "text", "any or same", "words",
// "choices".
std::string_view TypeName(const SettingSpec& spec);
// The values that a setting accepts: "1ms to 1h", "on or off", ...
std::string AllowedText(const SettingSpec& spec);

// Reads `text` into its member; kUsage with `where` as the place, the value and what is allowed.
// The values stay as they were when it fails. `alias`: the name that the user wrote, if it is not
// the setting's own one.
Status AssignSetting(const SettingSpec& spec, std::string_view text, std::string_view where,
                     SettingValues& values, std::string_view alias = "");
// The value as text that AssignSetting reads back.
std::string FormatSetting(const SettingSpec& spec, const SettingValues& values);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_SETTINGS_SETTING_TABLE_H_
