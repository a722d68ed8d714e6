// Settings from their four sources, each value with its origin: default < file < environment <
// flags.
#ifndef COTUNE_INTEGRATION_SETTINGS_SETTINGS_H_
#define COTUNE_INTEGRATION_SETTINGS_SETTINGS_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "integration/settings/setting_table.h"

namespace cotune {

// The user's input; nothing is read from the process itself.
struct SettingSources {
  std::map<std::string, std::string>
      environment;                           // all variables; an empty value counts as not set
  std::optional<std::string> settings_file;  // --config
  std::map<std::string, std::string> flags;  // name or alias of a setting -> text
  std::vector<std::string> backend_flags;    // --set texts, "host.slot_bytes=1M"
  // The origin of all flags, if they are options of a group. Empty: they are flags of the command
  // line, and the origins are "--budget", ...
  std::string flags_origin{};
};

struct ResolvedSettings {
  SettingValues values;
  // The origin of each value, by setting name: "default", "/etc/cotune.toml:3", "COTUNE_BUDGET" or
  // "--budget".
  std::map<std::string, std::string> origins;
  // Settings of backends, "host.slot_bytes" -> text, and their origins under the same key.
  std::map<std::string, std::string> backend_values;
  std::map<std::string, std::string> backend_origins;
  // The elements of force_choice that name custom operators of PyTorch; cotune.torch reads them.
  std::string forced_operators{};
  std::string settings_file;          // that was read; "" when there is none
  std::vector<std::string> warnings;  // unknown COTUNE_ variables, with the nearest name
};

// The value as the user wrote it, in one form: that of FormatSetting, and the custom operators of
// force_choice.
std::string TextOfSetting(const SettingSpec& spec, const ResolvedSettings& resolved);

// Sets the forced choices to those of the option `force` of a group. kUsage: a text that cannot be
// read, or custom operators of PyTorch, as in the options that SettingSources has as flags.
Status AssignForceOfGroup(std::string_view text, const std::string& origin, SettingValues& values);

// Settings as lines of "name=value", as flags. `where` names their place. kUsage: a line without
// '=', a name that no setting has, with the nearest one, or one that stands twice.
Result<std::map<std::string, std::string>> ParseSettingLines(std::string_view text,
                                                             std::string_view where);

// The settings file is --config, else COTUNE_CONFIG, else $XDG_CONFIG_HOME/cotune/config.toml (or
// ~/.config/cotune/config.toml) when that exists. kUsage: a value that does not fit, with origin
// and what is allowed; an unknown key, with line and the nearest name; a setting and its alias with
// different values in one source, with both places.
Result<ResolvedSettings> ResolveSettings(const SettingSources& sources);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_SETTINGS_SETTINGS_H_
