#include "core/base/signal_stack.h"

#include <new>

namespace cotune {

SignalStack::SignalStack() : memory_(new (std::nothrow) char[kBytes]) {
  if (memory_ == nullptr) return;
  stack_t own{};
  own.ss_sp = memory_.get();
  own.ss_size = kBytes;
  is_installed_ = sigaltstack(&own, &before_) == 0;
}

SignalStack::~SignalStack() {
  if (is_installed_) sigaltstack(&before_, nullptr);
}

}  // namespace cotune
