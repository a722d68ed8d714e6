// A Unix-domain socket that only processes of this user can reach.
#ifndef COTUNE_SYNC_SOCKET_UNIX_SOCKET_H_
#define COTUNE_SYNC_SOCKET_UNIX_SOCKET_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/clock.h"
#include "core/base/fork_guard.h"
#include "core/base/status.h"
#include "sync/wire/log.h"

namespace cotune::sync {

// Listens at `path`. Its directory is made when it is missing, belongs to this user and is closed
// to others (0700). A socket there whose process is gone is replaced, and `log` says so; other such
// sockets in the directory with names that cotune chooses (see IsChosenName) are removed. Processes
// that do this in one directory take turns, until deadline_ns. Errors: kUsage for the path's
// length, kEnvironment when another process has a socket there, something else lies there, the
// directory is not private, or the turn did not come.
Result<HomeFd> ListenAt(const std::string& path, const LogSink& log, const Clock& clock,
                        int64_t deadline_ns);

// Whether the file name is one that cotune chooses for the socket of a job: 16 hexadecimal digits
// and ".sock". Other programs have sockets in a user's private directories too.
bool IsChosenName(std::string_view name);

// Connects to `path`, trying again with growing pauses until deadline_ns, for rank 0 may come
// later. Errors: as above, and kRankLost naming rank 0 when nobody listened by then. Non-blocking
// socket.
// `notice`, if given, is called once if nobody listens after kJoinNoticeNs.
using WaitNotice = std::function<void(int64_t left_ns)>;
Result<HomeFd> ConnectTo(const std::string& path, int rank, const Clock& clock, int64_t deadline_ns,
                         const WaitNotice& notice = {});

// The process at the other end runs as this user.
bool SameUser(int socket_fd);

// "No such file or directory (2)".
std::string ErrnoText(int error);

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_SOCKET_UNIX_SOCKET_H_
