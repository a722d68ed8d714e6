#include "plugins/sdk/process_identity.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>

namespace cotune::sdk {
namespace {

// False when the process does not exist, or its stat file cannot be read or is that of another
// process.
bool ReadProcessState(int32_t pid, ProcessState& state) {
  if (!ProcIsOwn()) return false;
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

uint64_t OwnPidSpace() {
  struct stat space {};
  if (stat("/proc/self/ns/pid", &space) != 0) return 0;
  char boot_id[64];
  const int file = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t size = read(file, boot_id, sizeof(boot_id));
  close(file);
  if (size <= 0) return 0;
  // FNV-1a.
  uint64_t hash = 0xcbf29ce484222325;
  for (ssize_t i = 0; i < size; ++i) {
    hash = (hash ^ static_cast<unsigned char>(boot_id[i])) * 0x100000001b3;
  }
  return (hash ^ space.st_ino) * 0x100000001b3;
}

bool ShareProcessNumbers(const ProcessIdentity& one, const ProcessIdentity& other) {
  return one.pid_space == 0 || other.pid_space == 0 || one.pid_space == other.pid_space;
}

bool ProcIsOwn() {
  char target[16];
  const ssize_t size = readlink("/proc/self", target, sizeof(target));
  int32_t pid = 0;
  return size > 0 && std::from_chars(target, target + size, pid).ec == std::errc() &&
         pid == getpid();
}

ProcessIdentity OwnIdentity() {
  ProcessIdentity identity;
  identity.pid = getpid();
  identity.pid_space = OwnPidSpace();
  ProcessState state;
  if (ReadProcessState(identity.pid, state)) identity.start_ticks = state.start_ticks;
  return identity;
}

bool IsAlive(const ProcessIdentity& identity) {
  if (identity.pid_space != 0 && !ShareProcessNumbers(identity, {.pid_space = OwnPidSpace()})) {
    return true;
  }
  ProcessState state;
  if (!ReadProcessState(identity.pid, state)) {
    // /proc may hide the processes of other users, or be that of another namespace; the signal
    // tells "none" from "not allowed".
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
