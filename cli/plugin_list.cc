// `cotune plugin list`: every plugin that was found, and what became of it.
#include <memory>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/json_output.h"
#include "cli/lone_job.h"
#include "cli/rank_session.h"
#include "cli/text_table.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "plugins/api/cotune_backend_v1.h"

namespace cotune::cli {
namespace {

PluginRow ToRow(const PluginReport& report) {
  PluginRow row;
  row.path = report.path;
  row.name = report.backend;
  row.version = report.version;
  row.loaded = report.loaded;
  row.reason = report.reason;
  if (!report.version.empty()) row.abi = fmt::format("{}.{}", COTUNE_ABI_MAJOR, report.abi_minor);
  for (const MemoryKind kind : {MemoryKind::kHost, MemoryKind::kCuda}) {
    const bool has_kind = (report.memory_kinds & (1u << static_cast<unsigned>(kind))) != 0;
    if (has_kind) row.memory_kinds.emplace_back(Name(kind));
  }
  return row;
}

// A job says most: there every backend was made too. Without one that works, what the files say.
std::vector<PluginReport> Reports(const ResolvedSettings& settings, const PluginFlags& plugins,
                                  const JobMemory& memory, const Process& process) {
  const Result<std::unique_ptr<Job>> job = JoinAlone(settings, plugins, memory, process, true);
  if (job) return (*job)->plugin_reports();
  const JobOptions options = MakeJobOptions(settings, plugins, memory.kind, process);
  return ScanPlugins(options.plugin_paths, options.plugin_search_path).reports;
}

std::string ListText(const std::vector<PluginRow>& rows) {
  TextTable table({{"backend"}, {"version"}, {"abi"}, {"memory"}, {"state"}, {"path"}});
  std::string reasons;
  for (const PluginRow& row : rows) {
    table.AddRow(
        {row.name.empty() ? "-" : row.name, row.version.empty() ? "-" : row.version,
         row.abi.empty() ? "-" : row.abi,
         row.memory_kinds.empty() ? "-" : fmt::format("{}", fmt::join(row.memory_kinds, ",")),
         !row.loaded          ? "refused"
         : row.reason.empty() ? "loaded"
                              : "idle",
         row.path});
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
  std::vector<PluginRow> rows;
  for (const PluginReport& report : Reports(*settings, flags.plugins, *memory, process)) {
    rows.push_back(ToRow(report));
  }
  return console.PrintResult(console.flags().json ? PluginListJson(rows) : ListText(rows));
}

}  // namespace cotune::cli
