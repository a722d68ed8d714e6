#include "sync/socket/socket_file.h"

#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>

namespace cotune::sync {
namespace {

std::array<char, sizeof(sockaddr_un::sun_path)> noted_path{};
constexpr pid_t kIsWriting = -1;
// The process that listens there; 0: none, and the path may change; kIsWriting: a thread changes
// it.
std::atomic<pid_t> listener{0};
static_assert(std::atomic<pid_t>::is_always_lock_free);

}  // namespace

void NoteSocketFile(const std::string& path) {
  if (path.size() >= noted_path.size()) return;
  // Threads may create groups of several jobs, and a forked child begins anew.
  pid_t before = listener.load();
  if (before == getpid() || before == kIsWriting) return;
  if (!listener.compare_exchange_strong(before, kIsWriting)) return;
  *std::copy(path.begin(), path.end(), noted_path.begin()) = '\0';
  listener.store(getpid());
}

void ForgetSocketFile(const std::string& path) {
  if (listener.load() == getpid() && path == noted_path.data()) listener.store(0);
}

void RemoveNotedSocketFile() {
  if (listener.load() == getpid()) unlink(noted_path.data());
}

}  // namespace cotune::sync
