#include "core/database/tuned_database_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/database/tuned_database_file.h"
#include "fmt/format.h"

namespace cotune {
namespace {

constexpr std::string_view kInUseBy = "the tuned database is in use by ";

// "process 1234", as the holder wrote it; "" in the moment before it has, or when what is written
// there is left from one that died.
std::string LivingHolder(int fd) {
  std::array<char, 32> text{};
  const ssize_t got = pread(fd, text.data(), text.size(), 0);
  const std::string_view digits(text.data(), got > 0 ? static_cast<size_t>(got) : 0);
  pid_t pid = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), pid);
  const bool lives = pid > 0 && (kill(pid, 0) == 0 || errno == EPERM);
  return lives ? fmt::format("process {}", pid) : "";
}

tl::unexpected<Error> LockFailure(std::string what, const std::string& path) {
  return Fail(ErrorCode::kEnvironment, std::move(what), path, std::strerror(errno),
              "check that the folder of the tuned database exists and may be written");
}

}  // namespace

Result<DatabaseLock> DatabaseLock::Acquire(const std::string& database_path) {
  const std::string path = database_path + ".lock";
  // Whoever may read a file can hold its lock.
  constexpr mode_t kOwnerOnly = 0600;
  UniqueFd fd(open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, kOwnerOnly));
  if (!fd.is_open() && (errno == ENOENT || errno == ENOTDIR)) {
    return Fail(ErrorCode::kEnvironment, "the folder of the tuned database is not there",
                FolderOf(database_path), "", "make it, or name another");
  }
  if (!fd.is_open() || fchmod(fd.get(), kOwnerOnly) != 0) {
    return LockFailure("the lock file of the tuned database cannot be opened", path);
  }
  int locked = 0;
  do {
    locked = flock(fd.get(), LOCK_EX | LOCK_NB);
  } while (locked != 0 && errno == EINTR);
  if (locked != 0 && errno == EWOULDBLOCK) {
    const std::string holder = LivingHolder(fd.get());
    return Fail(ErrorCode::kDatabase,
                fmt::format("{}{}", kInUseBy, holder.empty() ? "another process" : holder),
                database_path, "another tune or merge writes to it",
                "wait for that one to end, or write to another file");
  }
  if (locked != 0) return LockFailure("the tuned database cannot be locked", path);
  const std::string pid = fmt::format("{}\n", getpid());
  if (ftruncate(fd.get(), 0) != 0 ||
      pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    return LockFailure("the lock file of the tuned database cannot be written", path);
  }
  RemoveTemporaryFiles(database_path);
  return DatabaseLock(std::move(fd));
}

bool DatabaseLock::IsHeld(const Error& error) {
  return error.code == ErrorCode::kDatabase && error.what.starts_with(kInUseBy);
}

std::string DatabaseLock::FindHolder(const std::string& database_path) {
  const std::string path = database_path + ".lock";
  const UniqueFd fd(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_open()) return "";
  std::string holder = LivingHolder(fd.get());
  if (holder.empty()) return "";
  // The id may have been given to another process since. A shared lock that is granted here ends
  // with `fd`; it is not asked for unless the holder lives, so that it hardly ever keeps a tune
  // out.
  const bool is_free = flock(fd.get(), LOCK_SH | LOCK_NB) == 0;
  return !is_free && errno == EWOULDBLOCK ? holder : "";
}

DatabaseLock::~DatabaseLock() {
  // So that the next one who finds it held is not told our id before the new holder has written its
  // own.
  if (fd_.is_open() && ftruncate(fd_.get(), 0) != 0) return;
}

}  // namespace cotune
