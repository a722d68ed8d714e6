// The lock on a tuned database: one process at a time may replace it, until that process dies.
#ifndef COTUNE_CORE_DATABASE_TUNED_DATABASE_LOCK_H_
#define COTUNE_CORE_DATABASE_TUNED_DATABASE_LOCK_H_

#include <string>
#include <utility>

#include "core/base/status.h"
#include "core/base/unique_fd.h"

namespace cotune {

// Holds PATH.lock by flock. The kernel lets go when the process ends, however it ends. The file is
// never removed: a process that waits for a removed file's lock would hold a lock that the next one
// does not see. A child that is forked without exec shares the lock.
class DatabaseLock {
 public:
  // Does not wait. kDatabase, with the other process's id, when it is held; kEnvironment when the
  // lock file cannot be made.
  static Result<DatabaseLock> Acquire(const std::string& database_path);
  // Returns whether Acquire has failed with this error because another one holds the lock.
  static bool IsHeld(const Error& error);
  // The living process that holds the lock, as "process 1234"; "" if there is none, or if it has
  // not written its id yet. Makes no file.
  static std::string FindHolder(const std::string& database_path);

  DatabaseLock(DatabaseLock&&) = default;
  DatabaseLock& operator=(DatabaseLock&&) = delete;
  ~DatabaseLock();

 private:
  explicit DatabaseLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_DATABASE_TUNED_DATABASE_LOCK_H_
