// A stack of its own for the handlers of signals that a thread gets.
#ifndef COTUNE_CORE_BASE_SIGNAL_STACK_H_
#define COTUNE_CORE_BASE_SIGNAL_STACK_H_

#include <signal.h>

#include <cstddef>
#include <memory>

namespace cotune {

// For as long as it lives, handlers that ask for it (SA_ONSTACK) run on this stack when its thread
// gets a signal. A thread whose own stack has run over has no room for a handler. Made and
// destroyed on the same thread; where there is no memory for it, the thread goes without.
class SignalStack {
 public:
  SignalStack();
  ~SignalStack();
  SignalStack(const SignalStack&) = delete;
  SignalStack& operator=(const SignalStack&) = delete;

 private:
  static constexpr size_t kBytes = 64 * 1024;

  const std::unique_ptr<char[]> memory_;
  stack_t before_{};  // a sanitizer may have given the thread one, which it takes back at its end
  bool is_installed_ = false;
};

}  // namespace cotune

#endif  // COTUNE_CORE_BASE_SIGNAL_STACK_H_
