#include "plugins/sdk/process_identity.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>

namespace cotune::sdk {
namespace {

// False when the process does not exist or its stat file cannot be read.
bool ReadProcessState(int32_t pid, ProcessState& state) {
  char path[32];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", pid);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char line[1024];
  const ssize_t size = read(file, line, sizeof(line));
  close(file);
  return size > 0 && ParseProcessStat(std::string_view(line, static_cast<size_t>(size)), state);
}

// A first thread that has ended shows as a zombie while the others run on; only the process file
// descriptor knows whether all of them are gone.
bool AllThreadsEnded(int32_t pid) {
  const long file = syscall(SYS_pidfd_open, pid, 0);
  if (file < 0) return true;
  pollfd entry = {.fd = static_cast<int>(file), .events = POLLIN, .revents = 0};
  const int ready = poll(&entry, 1, 0);
  close(static_cast<int>(file));
  return ready > 0;
}

}  // namespace

bool ParseProcessStat(std::string_view line, ProcessState& state) {
  // The command name may contain blanks and brackets, so the last bracket ends it.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string_view::npos || name_end + 2 >= line.size()) return false;
  line.remove_prefix(name_end + 2);
  constexpr int kFieldsFromStateToStart = 19;  // fields 3 (state) to 22 (start time)
  state.state = line.front();
  for (int i = 0; i < kFieldsFromStateToStart; ++i) {
    const size_t blank = line.find(' ');
    if (blank == std::string_view::npos) return false;
    line.remove_prefix(blank + 1);
  }
  return std::from_chars(line.data(), line.data() + line.size(), state.start_ticks).ec ==
         std::errc();
}

ProcessIdentity OwnIdentity() {
  ProcessIdentity identity;
  identity.pid = getpid();
  ProcessState state;
  if (ReadProcessState(identity.pid, state)) identity.start_ticks = state.start_ticks;
  return identity;
}

bool IsAlive(const ProcessIdentity& identity) {
  ProcessState state;
  if (!ReadProcessState(identity.pid, state)) {
    // /proc may hide the processes of other users; the signal tells "none" from "not allowed".
    return kill(identity.pid, 0) == 0 || errno == EPERM;
  }
  if (identity.start_ticks != 0 && state.start_ticks != identity.start_ticks) return false;
  if (state.state == 'Z' || state.state == 'X') return !AllThreadsEnded(identity.pid);
  return true;
}

bool IsStopped(const ProcessIdentity& identity) {
  ProcessState state;
  return ReadProcessState(identity.pid, state) && state.start_ticks == identity.start_ticks &&
         (state.state == 'T' || state.state == 't');
}

}  // namespace cotune::sdk
