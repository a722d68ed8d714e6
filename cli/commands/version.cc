// `cotune --version` and the texts of help.
#include "cli/commands/commands.h"
#include "cli/output/json_output.h"
#include "core/database/tuned_database.h"
#include "fmt/format.h"
#include "integration/job.h"
#include "plugins/api/cotune_backend_v1.h"

namespace cotune::cli {

int VersionCommand(const VersionFlags& /*flags*/, Process& process) {
  const VersionReport report{
      CotuneVersion(), fmt::format("{}.{}", COTUNE_ABI_MAJOR, COTUNE_ABI_MINOR),
      TunedDatabase::kSchemaVersion, fmt::format("gcc {}.{}", __GNUC__, __GNUC_MINOR__)};
  if (process.console.flags().json) return process.console.PrintResult(VersionJson(report));
  return process.console.PrintResult(
      fmt::format("cotune {} (plugin ABI {}, database schema {}, {})\n", report.cotune, report.abi,
                  report.database_schema, report.compiler));
}

int HelpCommand(const HelpFlags& flags, Process& process) {
  return process.console.PrintResult(flags.text);
}

}  // namespace cotune::cli
