#include "sync/socket/unix_socket.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>

#include "sync/wire/failure_text.h"
#include "sync/wire/limits.h"

namespace cotune::sync {
namespace {

constexpr int64_t kPauseMinNs = 1'000'000;
constexpr int64_t kPauseMaxNs = 50'000'000;

Result<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return Fail(ErrorCode::kUsage,
                fmt::format("the socket path has {} characters, 1 to {} are allowed", path.size(),
                            sizeof(address.sun_path) - 1),
                path, "the operating system bounds the paths of sockets",
                "choose a directory with a shorter path");
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

std::string DirectoryOf(const std::string& path) {
  const std::string directory = std::filesystem::path(path).parent_path();
  return directory.empty() ? "." : directory;
}

Status CheckDirectory(const std::string& path, bool make) {
  const std::string directory = DirectoryOf(path);
  if (make && mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return Fail(ErrorCode::kEnvironment,
                "cannot make the directory for the socket: " + ErrnoText(errno), directory,
                "its parent is missing or not writable", "choose another socket path");
  }
  struct stat info = {};
  if (lstat(directory.c_str(), &info) != 0) {
    if (errno == ENOENT && !make) return {};  // rank 0 will make it
    return Fail(ErrorCode::kEnvironment,
                "cannot look at the socket's directory: " + ErrnoText(errno), directory);
  }
  const bool is_private =
      S_ISDIR(info.st_mode) && info.st_uid == geteuid() && (info.st_mode & 077) == 0;
  if (!is_private) {
    return Fail(ErrorCode::kEnvironment, "the socket's directory is open to other users", directory,
                fmt::format("mode {:04o}, owner {}; this user is {}", info.st_mode & 07777,
                            info.st_uid, geteuid()),
                "use a directory of your own with mode 0700");
  }
  return {};
}

Result<HomeFd> MakeSocket(int type) {
  HomeFd fd = HomeFd::Make([&] { return socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); });
  if (fd.get() < 0) {
    return Fail(ErrorCode::kEnvironment, "cannot make a socket: " + ErrnoText(errno), "",
                "too many open files", "raise the limit (ulimit -n)");
  }
  return fd;
}

int Bind(int fd, const sockaddr_un& address) {
  return bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
}

int Connect(int fd, const sockaddr_un& address) {
  return connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
}

// ECONNREFUSED where no process has the socket any more. A datagram socket asks first: that of a
// living listener refuses it by its type (EPROTOTYPE), and the listener does not notice.
int Probe(const sockaddr_un& address) {
  for (const int type : {SOCK_DGRAM, SOCK_STREAM}) {
    const Result<HomeFd> probe = MakeSocket(type);
    if (!probe) return EMFILE;
    const int error = Connect(probe->get(), address);
    if (error != ECONNREFUSED) return error;
  }
  return ECONNREFUSED;
}

// Removes what a dead job left at `path`; an error when it is something else.
Status RemoveStale(const std::string& path, const sockaddr_un& address, const LogSink& log) {
  struct stat info = {};
  if (lstat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) {
    return Fail(ErrorCode::kEnvironment, "something that is no socket lies at the socket path",
                path, "", "remove it or choose another socket path");
  }
  const int error = Probe(address);
  if (error == ENOENT) return {};  // a job that ended has removed it meanwhile
  if (error != ECONNREFUSED) {
    return Fail(
        ErrorCode::kEnvironment, "another job uses the socket path", path,
        error == 0 || error == EPROTOTYPE ? "a process has a socket there" : ErrnoText(error),
        "wait for that job or give this one its own socket path");
  }
  if (log) log({Severity::kWarning, "removed the stale socket of a job that has ended: " + path});
  if (unlink(path.c_str()) != 0 && errno != ENOENT) {
    return Fail(ErrorCode::kEnvironment, "cannot remove a stale socket: " + ErrnoText(errno), path);
  }
  return {};
}

// Jobs choose a new path each time, so that what a killed one leaves is not met again.
void RemoveAbandoned(const std::string& directory, const LogSink& log) {
  size_t removed = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator file(directory, error), end; !error && file != end;
       file.increment(error)) {
    const std::string path = file->path();
    struct stat info = {};
    if (!IsChosenName(file->path().filename().native())) continue;
    if (lstat(path.c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) continue;
    const Result<sockaddr_un> address = AddressOf(path);
    if (!address || Probe(*address) != ECONNREFUSED) continue;
    if (unlink(path.c_str()) == 0) ++removed;
  }
  if (removed == 0 || !log) return;
  log({Severity::kInfo, fmt::format("removed {} socket{} of jobs that have ended from {}", removed,
                                    removed == 1 ? "" : "s", directory)});
}

// The right to make and remove sockets in the directory, until the descriptor closes. Without it a
// process could take a socket that is being made for one of a dead job.
Result<HomeFd> LockDirectory(const std::string& directory, const Clock& clock,
                             int64_t deadline_ns) {
  HomeFd fd = HomeFd::Make(
      [&] { return open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC); });
  const auto fail = [&](const std::string& why) {
    return Fail(ErrorCode::kEnvironment, "cannot lock the socket's directory: " + why, directory,
                "", "choose a socket path in a directory of your own on a local file system");
  };
  if (fd.get() < 0) return fail(ErrnoText(errno));
  while (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return fail(ErrnoText(errno));
    if (clock.now_ns() >= deadline_ns) return fail("another process keeps the lock");
    std::this_thread::sleep_for(std::chrono::nanoseconds(kPauseMinNs));
  }
  return fd;
}

// Grows to its maximum and differs between ranks, so that they do not all knock at once.
int64_t PauseNs(int rank, int attempt) {
  const int64_t full_ns = std::min(kPauseMaxNs, kPauseMinNs << std::min(attempt, 10));
  const uint64_t mixed =
      (static_cast<uint64_t>(rank) * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(attempt)) *
      0xbf58476d1ce4e5b9ull;
  return full_ns / 2 + static_cast<int64_t>((mixed >> 33) % static_cast<uint64_t>(full_ns / 2));
}

}  // namespace

bool IsChosenName(std::string_view name) {
  constexpr size_t kDigits = 16;
  return name.size() == kDigits + 5 && name.ends_with(".sock") &&
         name.find_first_not_of("0123456789abcdef") == kDigits;
}

std::string ErrnoText(int error) {
  return fmt::format("{} ({})", std::generic_category().message(error), error);
}

bool SameUser(int socket_fd) {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  return getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

Result<HomeFd> ListenAt(const std::string& path, const LogSink& log, const Clock& clock,
                        int64_t deadline_ns) {
  COTUNE_TRY(const sockaddr_un address, AddressOf(path));
  COTUNE_RETURN_IF_ERROR(CheckDirectory(path, true));
  const std::string directory = DirectoryOf(path);
  COTUNE_TRY(const HomeFd lock, LockDirectory(directory, clock, deadline_ns));
  Result<HomeFd> fd = MakeSocket(SOCK_STREAM);
  if (!fd) return fd;
  int error = Bind(fd->get(), address);
  if (error == EADDRINUSE) {
    COTUNE_RETURN_IF_ERROR(RemoveStale(path, address, log));
    error = Bind(fd->get(), address);
  }
  if (error == 0 && listen(fd->get(), SOMAXCONN) != 0) error = errno;
  if (error != 0) {
    return Fail(ErrorCode::kEnvironment, "cannot listen at the socket path: " + ErrnoText(error),
                path, "", "choose another socket path");
  }
  RemoveAbandoned(directory, log);
  return fd;
}

Result<HomeFd> ConnectTo(const std::string& path, int rank, const Clock& clock, int64_t deadline_ns,
                         const WaitNotice& notice) {
  COTUNE_TRY(const sockaddr_un address, AddressOf(path));
  const int64_t began_ns = clock.now_ns();
  int64_t notice_ns = notice ? AddNs(began_ns, kJoinNoticeNs) : INT64_MAX;
  for (int attempt = 0;; ++attempt) {
    COTUNE_RETURN_IF_ERROR(CheckDirectory(path, false));
    Result<HomeFd> fd = MakeSocket(SOCK_STREAM);
    if (!fd) return fd;
    const int error = Connect(fd->get(), address);
    if (error == 0 && SameUser(fd->get())) return fd;
    if (error == 0 || (error != ENOENT && error != ECONNREFUSED && error != EAGAIN)) {
      return Fail(ErrorCode::kEnvironment,
                  error == 0 ? "the socket of rank 0 belongs to another user"
                             : "cannot connect to rank 0: " + ErrnoText(error),
                  path, "", "choose a socket path in a directory of your own");
    }
    const int64_t now_ns = clock.now_ns();
    if (now_ns >= deadline_ns) {
      return tl::make_unexpected(
          RankLost(fmt::format("rank {} found nobody at the socket of rank 0 for {}", rank,
                               DurationText(now_ns - began_ns)),
                   path, "rank 0 was not started, has ended, or uses another path",
                   "see whether rank 0 runs and was given the same socket path", {0}));
    }
    if (now_ns >= notice_ns) {
      notice_ns = INT64_MAX;
      notice(deadline_ns == INT64_MAX ? INT64_MAX : deadline_ns - now_ns);
    }
    const int64_t pause_ns = std::min(PauseNs(rank, attempt), deadline_ns - now_ns);
    std::this_thread::sleep_for(std::chrono::nanoseconds(pause_ns));
  }
}

}  // namespace cotune::sync
