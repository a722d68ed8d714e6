#include "integration/missing_database.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "core/database/tuned_database_lock.h"
#include "fmt/format.h"

namespace cotune {

UnfinishedTune FindUnfinishedTune(const std::string& database_path) {
  const std::string holder = DatabaseLock::FindHolder(database_path);
  if (!holder.empty()) {
    return {fmt::format("{} is writing to it", holder), "wait until it ends"};
  }
  const std::string journal = database_path + ".journal";
  if (access(journal.c_str(), F_OK) != 0) return {};
  return {"",
          fmt::format("a tune that was ended has left {}: run it again to go on from it", journal)};
}

std::string RunningTuneText(const std::string& database_path, std::string_view use) {
  const std::string holder = DatabaseLock::FindHolder(database_path);
  if (holder.empty()) return "";
  return fmt::format("{} is writing to {}; the results {} are from before that", holder,
                     database_path, use);
}

Error ExplainMissing(Error error, const std::string& database_path) {
  const bool is_missing = error.code == ErrorCode::kEnvironment &&
                          access(database_path.c_str(), F_OK) != 0 && errno == ENOENT;
  if (!is_missing) return error;
  UnfinishedTune tune = FindUnfinishedTune(database_path);
  if (!tune.cause.empty()) error.cause = std::move(tune.cause);
  if (!tune.next_step.empty()) error.next_step = std::move(tune.next_step);
  return error;
}

}  // namespace cotune
