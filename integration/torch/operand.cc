#include "integration/torch/operand.h"

#include "fmt/format.h"

namespace cotune::torch_operators {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

std::optional<cotune_dtype> DtypeOf(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Float:
      return COTUNE_F32;
    case ScalarType::Double:
      return COTUNE_F64;
    case ScalarType::Half:
      return COTUNE_F16;
    case ScalarType::BFloat16:
      return COTUNE_BF16;
    case ScalarType::Int:
      return COTUNE_I32;
    case ScalarType::Long:
      return COTUNE_I64;
    case ScalarType::Byte:
    case ScalarType::Bool:  // a byte that is 0 or 1, as comparisons in programs give
      return COTUNE_U8;
    case ScalarType::Char:
      return COTUNE_I8;
    case ScalarType::Float8_e4m3fn:
      return COTUNE_F8_E4M3;
    case ScalarType::Float8_e5m2:
      return COTUNE_F8_E5M2;
    default:
      return std::nullopt;
  }
}

int32_t DeviceOf(const Tensor& tensor) {
  if (tensor.is_cpu()) return -1;
  if (tensor.is_cuda()) return tensor.get_device_index();
  throw OperatorError(
      "cotune: the operands of an operator lie neither on the CPU nor on a CUDA device");
}

cotune_tensor OperandOf(const Tensor& tensor, const char* what, size_t index) {
  const ScalarType dtype = tensor.scalar_type();
  const std::optional<cotune_dtype> own = DtypeOf(dtype);
  if (!own) {
    throw OperatorError(fmt::format(
        "cotune: {} {} of an operator has a dtype that cotune does not have (PyTorch's number {})",
        what, index + 1, static_cast<int>(dtype)));
  }
  if (!tensor.is_contiguous()) {
    throw OperatorError(
        fmt::format("cotune: {} {} of an operator is not contiguous; call .contiguous() on it",
                    what, index + 1));
  }
  const auto sizes = tensor.sizes();
  return {sizeof(cotune_tensor), *own, tensor.data_ptr(), static_cast<uint32_t>(sizes.size()), 0,
          sizes.data()};
}

}  // namespace cotune::torch_operators
