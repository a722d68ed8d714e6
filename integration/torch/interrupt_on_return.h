// An interrupt (Ctrl-C) that arrives in a function of Python that an operator calls back.
#ifndef COTUNE_INTEGRATION_TORCH_INTERRUPT_ON_RETURN_H_
#define COTUNE_INTEGRATION_TORCH_INTERRUPT_ON_RETURN_H_

#include <cstdint>

#include "integration/torch/cotune_torch.h"

namespace cotune::torch_operators {

// The operator that a thread is in, as long as this object lives. Its destructor, on return and on
// an exception alike, calls the function that InterruptOnReturn was given meanwhile. In an operator
// that runs within another one of the same thread it leaves the call to the outer one.
class OperatorCall {
 public:
  OperatorCall();
  ~OperatorCall();
  OperatorCall(const OperatorCall&) = delete;
  OperatorCall& operator=(const OperatorCall&) = delete;
};

// See cotune_torch_interrupt_on_return.
bool InterruptOnReturn(cotune_torch_interrupt interrupt);

}  // namespace cotune::torch_operators

#endif  // COTUNE_INTEGRATION_TORCH_INTERRUPT_ON_RETURN_H_
