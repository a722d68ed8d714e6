// Signals of this process, read in turn from a pipe.
#ifndef COTUNE_INTEGRATION_SIGNAL_PIPE_H_
#define COTUNE_INTEGRATION_SIGNAL_PIPE_H_

#include <signal.h>

#include <array>
#include <optional>

namespace cotune {

// Catches SIGCHLD, SIGINT and SIGTERM as long as it lives, and SIGHUP, SIGQUIT and SIGTSTP where
// the process does not ignore them (as under nohup). Handlers instead of a signalfd: a process may
// have threads that block nothing (a GPU's driver starts some), and a signal that reaches such a
// thread never shows in a signalfd. One at a time in a process; Read by one thread.
class SignalPipe {
 public:
  SignalPipe();
  ~SignalPipe();
  SignalPipe(const SignalPipe&) = delete;
  SignalPipe& operator=(const SignalPipe&) = delete;

  // Readable when a signal came.
  int fd() const { return ends_[0]; }

  // The number of the next signal; nothing when none is left.
  std::optional<int> Read();

  // Keep them from this thread around a fork: a child must not write into its parent's pipe.
  void Block();
  void Unblock();
  // In a child between fork and exec, blocked: signals are as they were before this object. Those
  // that this process takes although they were ignored have their default action. Safe there.
  void RestoreInChild() const;

 private:
  static constexpr std::array kNumbers = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP};
  int ends_[2] = {-1, -1};
  int before_fd_ = -1;
  sigset_t mask_before_{};
  std::array<struct sigaction, kNumbers.size()> actions_before_{};
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_SIGNAL_PIPE_H_
