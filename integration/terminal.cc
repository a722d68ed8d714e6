#include "integration/terminal.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

namespace cotune {

Terminal::Terminal() : fd_(open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)) {}

bool Terminal::LendTo(pid_t group) {
  if (!fd_.is_open()) return false;
  const pid_t foreground = tcgetpgrp(fd_.get());
  if (is_lent() && foreground == group) return true;
  if (foreground != getpgrp()) return false;
  if (!SetForeground(group)) return false;
  lent_to_ = group;
  return true;
}

void Terminal::TakeBack() {
  // A shell may have taken it meanwhile.
  if (is_lent() && tcgetpgrp(fd_.get()) == lent_to_) SetForeground(getpgrp());
  lent_to_ = 0;
}

bool Terminal::SetForeground(pid_t group) const {
  // The kernel stops a background process that changes the terminal, unless it blocks this signal.
  sigset_t wanted;
  sigset_t before;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGTTOU);
  pthread_sigmask(SIG_BLOCK, &wanted, &before);
  const bool done = tcsetpgrp(fd_.get(), group) == 0;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return done;
}

}  // namespace cotune
