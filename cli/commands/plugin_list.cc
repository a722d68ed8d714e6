// `cotune plugin list`: every plugin that was found, and what became of it.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/output/json_output.h"
#include "cli/output/text_table.h"
#include "cli/session/lone_job.h"
#include "cli/session/rank_session.h"
#include "core/base/memory_text.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "integration/plugin_scan.h"
#include "plugins/api/cotune_backend_v1.h"

namespace cotune::cli {
namespace {

PluginRow ToRow(const PluginReport& report) {
  PluginRow row;
  row.path = report.path;
  row.name = report.backend;
  row.version = report.version;
  row.loaded = report.loaded;
  row.state = !report.loaded ? "refused" : report.reason.empty() ? "loaded" : "idle";
  row.reason = report.reason;
  row.group_bytes = report.group_bytes;
  if (!report.version.empty()) row.abi = fmt::format("{}.{}", COTUNE_ABI_MAJOR, report.abi_minor);
  for (const MemoryKind kind : {MemoryKind::kHost, MemoryKind::kCuda}) {
    const bool has_kind = (report.memory_kinds & (1u << static_cast<unsigned>(kind))) != 0;
    if (has_kind) row.memory_kinds.emplace_back(Name(kind));
  }
  return row;
}

// The rows when no backend could be made: what the files say, and why none was tried.
std::vector<PluginRow> UntriedRows(const JobOptions& options, const Error& why) {
  std::vector<PluginRow> rows;
  for (const PluginReport& report : ScanPlugins(options).reports) {
    rows.push_back(ToRow(report));
    if (!report.loaded) continue;
    rows.back().loaded = false;
    rows.back().state = "untried";
    rows.back().reason = "whether it works here was not tried: " + why.ToText();
  }
  return rows;
}

// The error of the list if a plugin that the user has named is refused.
std::optional<Error> NamedRefusal(const Job& job) {
  for (const PluginReport& report : job.plugin_reports()) {
    if (report.is_named && !report.loaded) {
      return Error{ErrorCode::kPluginRefused,
                   "a plugin that was named is refused",
                   report.path,
                   "",
                   "see the reason that is listed",
                   {}};
    }
  }
  return std::nullopt;
}

std::string ListText(const std::vector<PluginRow>& rows) {
  TextTable table({{"backend"}, {"version"}, {"abi"}, {"memory"}, {"state"}, {"path"}});
  std::string reasons;
  for (const PluginRow& row : rows) {
    table.AddRow(
        {row.name.empty() ? "-" : row.name, row.version.empty() ? "-" : row.version,
         row.abi.empty() ? "-" : row.abi,
         row.memory_kinds.empty() ? "-" : fmt::format("{}", fmt::join(row.memory_kinds, ",")),
         row.state, row.path});
    if (row.group_bytes) {
      reasons += fmt::format("\n{}\n  a group of one rank takes {} of the GPU's memory\n", row.path,
                             MemoryText(*row.group_bytes));
    }
    if (!row.reason.empty()) reasons += fmt::format("\n{}\n  {}\n", row.path, row.reason);
  }
  return table.ToText(0) + reasons;
}

}  // namespace

int PluginListCommand(const PluginListFlags& flags, Process& process) {
  Console& console = process.console;
  const Result<ResolvedSettings> settings = ReadSettings(flags.settings, process);
  if (!settings) return console.PrintError(settings.error());
  const Result<JobMemory> memory = ChooseMemory(*settings, flags.plugins, process);
  if (!memory) return console.PrintError(memory.error());
  const Result<std::unique_ptr<Job>> job =
      JoinAlone(*settings, flags.plugins, *memory, process, JobPurpose::kSurvey);
  if (!job && job.error().code == ErrorCode::kUsage) return console.PrintError(job.error());
  std::vector<PluginRow> rows;
  if (job) {
    for (const PluginReport& report : (*job)->plugin_reports()) rows.push_back(ToRow(report));
  } else {
    console.LogError(job.error());
    const JobOptions options = MakeJobOptions(*settings, flags.plugins, memory->kind, process);
    rows = UntriedRows(options, job.error());
  }
  const int printed =
      console.PrintResult(console.flags().json ? PluginListJson(rows) : ListText(rows));
  if (printed != 0) return printed;
  if (!job) return ExitCode(job.error().code);
  if (const std::optional<Error> refused = NamedRefusal(**job)) {
    console.LogError(*refused);
    return ExitCode(refused->code);
  }
  const bool is_usable = std::any_of(rows.begin(), rows.end(),
                                     [](const PluginRow& row) { return row.state == "loaded"; });
  if (is_usable) return 0;
  const JobOptions options = MakeJobOptions(*settings, flags.plugins, memory->kind, process);
  const Error nothing = rows.empty() ? NoPluginFound(options.catalogue.plugin_search_path)
                                     : Error{ErrorCode::kEnvironment,
                                             "no plugin can be used",
                                             "",
                                             "",
                                             "see the reasons that are listed",
                                             {}};
  console.LogError(nothing);
  return ExitCode(nothing.code);
}

}  // namespace cotune::cli
