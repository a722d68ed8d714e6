#include "integration/torch/interrupt_on_return.h"

#include <utility>

namespace cotune::torch_operators {
namespace {

struct CallsOfThread {
  int depth = 0;
  cotune_torch_interrupt interrupt = nullptr;
};

// Python's main thread is the only one that has interrupts, but an operator may run on any thread.
thread_local CallsOfThread calls;

}  // namespace

OperatorCall::OperatorCall() { ++calls.depth; }

OperatorCall::~OperatorCall() {
  if (--calls.depth > 0) return;
  if (const auto interrupt = std::exchange(calls.interrupt, nullptr)) interrupt();
}

bool InterruptOnReturn(cotune_torch_interrupt interrupt) {
  if (calls.depth == 0) return false;
  calls.interrupt = interrupt;
  return true;
}

}  // namespace cotune::torch_operators

extern "C" int32_t cotune_torch_interrupt_on_return(cotune_torch_interrupt interrupt) {
  return cotune::torch_operators::InterruptOnReturn(interrupt) ? 1 : 0;
}
