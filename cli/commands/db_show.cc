// `cotune db show`: what a tuned database holds, and what of it is valid here.
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/commands/commands.h"
#include "cli/output/json_output.h"
#include "cli/output/winner_table.h"
#include "cli/session/lone_job.h"
#include "cli/session/rank_session.h"
#include "core/base/counted.h"
#include "fmt/format.h"
#include "integration/database_path.h"
#include "integration/missing_database.h"

namespace cotune::cli {
namespace {

struct Shown {
  std::string path;
  std::vector<ShownEntry> entries;
};

Result<Shown> ReadEntries(const DbShowFlags& flags, Process& process) {
  COTUNE_TRY(const ResolvedSettings settings, ReadSettings(flags.settings, process));
  COTUNE_TRY(const JobMemory memory, ChooseMemory(settings, flags.plugins, process));
  COTUNE_TRY(const std::unique_ptr<Job> job, JoinAlone(settings, flags.plugins, memory, process));
  const std::string& asked = flags.file.empty() ? settings.values.database : flags.file;
  COTUNE_TRY(std::string path, DatabasePath(asked, process.environment, job->fingerprint()));
  const std::string running_tune = RunningTuneText(path, "shown");
  const Result<TunedDatabase> database = TunedDatabase::Load(path);
  if (database) process.console.Note(running_tune);
  if (!database) return tl::make_unexpected(ExplainMissing(database.error(), path));
  COTUNE_TRY(std::vector<DatabaseEntry> entries, database->entries());
  Shown shown{std::move(path), {}};
  for (DatabaseEntry& entry : entries) {
    std::optional<Miss> miss = WhyNotValid(entry.fingerprint, entry.winner.id, job->fingerprint());
    shown.entries.push_back({std::move(entry), std::move(miss)});
  }
  return shown;
}

std::string FingerprintText(const Fingerprint& fingerprint) {
  std::string text = "measured with";
  for (const auto& [name, version] : fingerprint.backends) {
    text += fmt::format("{} {} {}", text.ends_with("with") ? "" : ",", name, version);
  }
  text += fmt::format(", {}, on\n", fingerprint.measuring_mode);
  for (const auto& [name, value] : fingerprint.machine) {
    text += fmt::format("  {}: {}\n", name, value);
  }
  for (const auto& [name, connections] : fingerprint.connections) {
    text += fmt::format("  connections of {}: {}\n", name, connections);
  }
  return text;
}

// One part a machine and set of versions.
std::string ShowText(const std::string& path, const std::vector<ShownEntry>& shown) {
  std::map<Fingerprint, std::vector<DatabaseEntry>> parts;
  std::map<Fingerprint, std::optional<Miss>> misses;
  for (const ShownEntry& each : shown) {
    parts[each.entry.fingerprint].push_back(each.entry);
    misses[each.entry.fingerprint] = each.miss;
  }
  std::string text =
      fmt::format("{}: {}\n", path, Counted(static_cast<int64_t>(shown.size()), "entry"));
  for (const auto& [fingerprint, entries] : parts) {
    const std::optional<Miss>& miss = misses[fingerprint];
    text += "\n" + FingerprintText(fingerprint);
    text += miss ? fmt::format("  not valid here: {}\n\n", miss->detail) : "  valid here\n\n";
    text += WinnerTableText(entries);
  }
  return text;
}

}  // namespace

int DbShowCommand(const DbShowFlags& flags, Process& process) {
  Console& console = process.console;
  const Result<Shown> shown = ReadEntries(flags, process);
  if (!shown) return console.PrintError(shown.error());
  return console.PrintResult(console.flags().json ? DbShowJson(shown->path, shown->entries)
                                                  : ShowText(shown->path, shown->entries));
}

}  // namespace cotune::cli
