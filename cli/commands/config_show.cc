// `cotune config show`: every setting, its value and where it comes from.
#include "cli/commands/commands.h"
#include "cli/output/json_output.h"
#include "cli/output/text_table.h"
#include "cli/session/rank_session.h"

namespace cotune::cli {

int ConfigShowCommand(const ConfigShowFlags& flags, Process& process) {
  Console& console = process.console;
  const Result<ResolvedSettings> settings = ReadSettings(flags.settings, process);
  if (!settings) return console.PrintError(settings.error());
  if (console.flags().json) return console.PrintResult(ConfigShowJson(*settings));
  TextTable table({{"setting"}, {"value"}, {"origin"}, {"what it does"}});
  for (const SettingSpec& spec : AllSettings()) {
    table.AddRow({std::string(spec.name), TextOfSetting(spec, *settings),
                  settings->origins.at(std::string(spec.name)), HelpText(spec)});
  }
  for (const auto& [name, value] : settings->backend_values) {
    table.AddRow({name, value, settings->backend_origins.at(name), "setting of a backend"});
  }
  return console.PrintResult(table.ToText(0));
}

}  // namespace cotune::cli
