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
  COTUNE_TRY(const DatabaseLock lock, DatabaseLock::Acquire(flags.output));
  TunedDatabase merged;
  std::string old_bytes;
  struct stat status {};
  const bool has_output = lstat(flags.output.c_str(), &status) == 0;
  if (has_output) {
    COTUNE_TRY(TunedDatabase old, TunedDatabase::Load(flags.output));
    COTUNE_TRY(const std::string bytes, old.Serialize());
    old_bytes = bytes;
    merged = std::move(old);
  }
  for (const std::string& input : flags.inputs) {
    COTUNE_TRY(const TunedDatabase database, TunedDatabase::Load(input));
    merged.Merge(database);
  }
  COTUNE_TRY(const std::string bytes, merged.Serialize());
  const bool is_changed = !has_output || bytes != old_bytes;
  if (is_changed) {
    COTUNE_RETURN_IF_ERROR(merged.Save(flags.output));
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
