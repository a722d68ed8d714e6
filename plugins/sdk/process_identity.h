// Which process a rank is, and whether it still runs.
#ifndef COTUNE_PLUGINS_SDK_PROCESS_IDENTITY_H_
#define COTUNE_PLUGINS_SDK_PROCESS_IDENTITY_H_

#include <cstdint>
#include <string_view>

namespace cotune::sdk {

// A process number alone may be given to a new process; with the start time it is unique among the
// processes of a PID namespace.
struct ProcessIdentity {
  int32_t pid = 0;
  uint64_t start_ticks = 0;  // clock ticks after boot, from /proc/PID/stat; 0: not known
  uint64_t pid_space = 0;    // as OwnPidSpace gives it; 0: that of the process which asks

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// The state of a process by /proc/PID/stat.
struct ProcessState {
  char state = '?';  // R, S, D, T, Z, ...
  uint64_t start_ticks = 0;
};

// Parses one line of /proc/PID/stat, whose second field may hold any characters. False when the
// line is not of that form.
bool ParseProcessStat(std::string_view line, ProcessState& state);

// The identity of the calling process.
ProcessIdentity OwnIdentity();

// The inode of the PID namespace of the calling process, mixed with the kernel's boot id: equal for
// processes whose process numbers mean the same. 0: not known.
uint64_t OwnPidSpace();

// Returns true if the process numbers of both mean the same, as far as is known.
bool ShareProcessNumbers(const ProcessIdentity& one, const ProcessIdentity& other);

// Returns true if /proc is that of the PID namespace of this process. `unshare --pid` without
// `--mount-proc` gives a process a new namespace and leaves it the /proc of the old one.
bool ProcIsOwn();

// False once the process has ended, also while nobody has collected its exit status. A process that
// is stopped or slow is alive, and so is one whose number means nothing here: that cannot be known.
// About ten microseconds. Any thread.
bool IsAlive(const ProcessIdentity& identity);

// Whether the process is stopped, by a signal or a debugger; false where that cannot be seen. Any
// thread.
bool IsStopped(const ProcessIdentity& identity);

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_PROCESS_IDENTITY_H_
