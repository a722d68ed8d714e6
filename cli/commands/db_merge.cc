// `cotune db merge`: the union of databases, written in one step.
#include <sys/stat.h>

#include <string>

#include "cli/commands/commands.h"
#include "cli/output/json_output.h"
#include "core/base/counted.h"
#include "core/database/tuned_database.h"
#include "core/database/tuned_database_lock.h"
#include "fmt/format.h"

namespace cotune::cli {
namespace {

// An output that exists takes part, so that nothing it holds is lost.
Result<MergeSummary> Merge(const DbMergeFlags& flags) {
  const Result<DatabaseLock> lock = DatabaseLock::Acquire(flags.output);
  if (!lock) return Propagate(lock);
  TunedDatabase merged;
  std::string old_bytes;
  struct stat status {};
  const bool has_output = lstat(flags.output.c_str(), &status) == 0;
  if (has_output) {
    Result<TunedDatabase> old = TunedDatabase::Load(flags.output);
    if (!old) return Propagate(old);
    const Result<std::string> bytes = old->Serialize();
    if (!bytes) return Propagate(bytes);
    old_bytes = *bytes;
    merged = std::move(*old);
  }
  for (const std::string& input : flags.inputs) {
    const Result<TunedDatabase> database = TunedDatabase::Load(input);
    if (!database) return Propagate(database);
    merged.Merge(*database);
  }
  const Result<std::string> bytes = merged.Serialize();
  if (!bytes) return Propagate(bytes);
  const bool is_changed = !has_output || *bytes != old_bytes;
  if (is_changed) {
    if (Status saved = merged.Save(flags.output); !saved) return Propagate(saved);
  }
  return MergeSummary{flags.output, flags.inputs, merged.size(), is_changed};
}

}  // namespace

int DbMergeCommand(const DbMergeFlags& flags, Process& process) {
  Console& console = process.console;
  const Result<MergeSummary> summary = Merge(flags);
  if (!summary) return console.PrintError(summary.error());
  if (console.flags().json) return console.PrintResult(DbMergeJson(*summary));
  return console.PrintResult(fmt::format("{}: {}{}\n", summary->output,
                                         Counted(static_cast<int64_t>(summary->entries), "entry"),
                                         summary->is_changed ? "" : ", nothing new"));
}

}  // namespace cotune::cli
