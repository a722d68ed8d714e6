// PyTorch's tensors as operands of cotune's calls.
#ifndef COTUNE_INTEGRATION_TORCH_OPERAND_H_
#define COTUNE_INTEGRATION_TORCH_OPERAND_H_

#include <torch/csrc/stable/tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "integration/capi/cotune.h"
#include "integration/torch/operator_error.h"

namespace cotune::torch_operators {

// The dtype of cotune for one of PyTorch; nothing where cotune has none.
std::optional<cotune_dtype> DtypeOf(torch::headeronly::ScalarType dtype);

// "float32": as torch calls it. One that is newer than this list: "of PyTorch's number 60".
std::string DtypeText(torch::headeronly::ScalarType dtype);

// cotune's collectives of plain buffers take it.
bool IsOfCollectives(torch::headeronly::ScalarType dtype);

// For a dtype that `collective` ("all_reduce") does not take; names those that it does.
OperatorError DtypeRefusal(torch::headeronly::ScalarType dtype, std::string_view collective);

// The CUDA ordinal of the tensor's memory; -1: the host. OperatorError for other devices.
int32_t DeviceOf(const torch::stable::Tensor& tensor);

// Points into the tensor, which outlives it. OperatorError, which names the operand by `what` and
// its number, for a dtype that cotune does not have and for a tensor that is not contiguous.
cotune_tensor OperandOf(const torch::stable::Tensor& tensor, const char* what, size_t index);

}  // namespace cotune::torch_operators

#endif  // COTUNE_INTEGRATION_TORCH_OPERAND_H_
