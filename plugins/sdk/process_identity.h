// Which process a rank is, and whether it still runs.
#ifndef COTUNE_PLUGINS_SDK_PROCESS_IDENTITY_H_
#define COTUNE_PLUGINS_SDK_PROCESS_IDENTITY_H_

#include <cstdint>
#include <string_view>

namespace cotune::sdk {

// A process number alone may be given to a new process; with the start time it is unique.
struct ProcessIdentity {
  int32_t pid = 0;
  uint64_t start_ticks = 0;  // clock ticks after boot, from /proc/PID/stat

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

// False once the process has ended, also while nobody has collected its exit status. A process that
// is stopped or slow is alive. About ten microseconds. Any thread.
bool IsAlive(const ProcessIdentity& identity);

// Whether the process is stopped, by a signal or a debugger; false where that cannot be seen. Any
// thread.
bool IsStopped(const ProcessIdentity& identity);

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_PROCESS_IDENTITY_H_
