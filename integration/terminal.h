// The terminal of this process, which one process group at a time may read.
#ifndef COTUNE_INTEGRATION_TERMINAL_H_
#define COTUNE_INTEGRATION_TERMINAL_H_

#include <sys/types.h>

#include "core/base/unique_fd.h"

namespace cotune {

// Ranks have process groups of their own, and the kernel stops a group that reads the terminal in
// the background. Rank 0 may read it all the same: the terminal is lent to its group when it does,
// as a shell brings a job to the foreground. Not thread-safe.
class Terminal {
 public:
  Terminal();
  ~Terminal() { TakeBack(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  // True also when the group has it already; false when this process does not have it to lend.
  bool LendTo(pid_t group);
  void TakeBack();
  bool is_lent() const { return lent_to_ != 0; }

 private:
  // False when it cannot be done.
  bool SetForeground(pid_t group) const;

  UniqueFd fd_;  // not open: there is no terminal
  pid_t lent_to_ = 0;
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_TERMINAL_H_
