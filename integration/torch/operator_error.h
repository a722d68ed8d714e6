// The error of an operator.
#ifndef COTUNE_INTEGRATION_TORCH_OPERATOR_ERROR_H_
#define COTUNE_INTEGRATION_TORCH_OPERATOR_ERROR_H_

#include <stdexcept>

namespace cotune::torch_operators {

// Operators raise it; PyTorch hands the text to its caller as a RuntimeError.
class OperatorError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace cotune::torch_operators

#endif  // COTUNE_INTEGRATION_TORCH_OPERATOR_ERROR_H_
