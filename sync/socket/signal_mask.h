// Signals belong to the program's own threads.
#ifndef COTUNE_SYNC_SOCKET_SIGNAL_MASK_H_
#define COTUNE_SYNC_SOCKET_SIGNAL_MASK_H_

#include <pthread.h>

#include <csignal>

namespace cotune::sync {

// While it lives, threads that are started take no signals: an interrupt must reach the thread that
// expects it.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_SOCKET_SIGNAL_MASK_H_
