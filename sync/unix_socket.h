// A Unix-domain socket that only processes of this user can reach.
#ifndef COTUNE_SYNC_UNIX_SOCKET_H_
#define COTUNE_SYNC_UNIX_SOCKET_H_

#include <cstdint>
#include <string>
#include <utility>

#include "core/clock.h"
#include "core/status.h"
#include "sync/log.h"

namespace cotune::sync {

// A file descriptor that closes itself.
class OwnedFd {
 public:
  explicit OwnedFd(int fd = -1) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept;
  ~OwnedFd();

  int get() const { return fd_; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// Listens at `path`. Its directory is made when it is missing, belongs to this user and is closed
// to others (0700). A socket that nobody listens at any more is replaced, and `log` says so.
// Errors: kUsage for the path's length, kEnvironment when another job listens there, something else
// lies there, or the directory is not private.
Result<OwnedFd> ListenAt(const std::string& path, const LogSink& log);

// Connects to `path`, trying again with growing pauses until deadline_ns, for rank 0 may come
// later. Errors: as above, and kRankLost naming rank 0 when nobody listened by then. Non-blocking
// socket.
Result<OwnedFd> ConnectTo(const std::string& path, int rank, const Clock& clock,
                          int64_t deadline_ns);

// The process at the other end runs as this user.
bool SameUser(int socket_fd);

// "No such file or directory (2)".
std::string ErrnoText(int error);

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_UNIX_SOCKET_H_
