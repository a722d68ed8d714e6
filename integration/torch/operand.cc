#include "integration/torch/operand.h"

#include <array>

#include "fmt/format.h"

namespace cotune::torch_operators {
namespace {

// By the numbers of PyTorch's scalar types, which it keeps.
constexpr std::array<std::string_view, 46> kDtypeNames = {"uint8",
                                                          "int8",
                                                          "int16",
                                                          "int32",
                                                          "int64",
                                                          "float16",
                                                          "float32",
                                                          "float64",
                                                          "complex32",
                                                          "complex64",
                                                          "complex128",
                                                          "bool",
                                                          "qint8",
                                                          "quint8",
                                                          "qint32",
                                                          "bfloat16",
                                                          "quint4x2",
                                                          "quint2x4",
                                                          "bits1x8",
                                                          "bits2x4",
                                                          "bits4x2",
                                                          "bits8",
                                                          "bits16",
                                                          "float8_e5m2",
                                                          "float8_e4m3fn",
                                                          "float8_e5m2fnuz",
                                                          "float8_e4m3fnuz",
                                                          "uint16",
                                                          "uint32",
                                                          "uint64",
                                                          "uint1",
                                                          "uint2",
                                                          "uint3",
                                                          "uint4",
                                                          "uint5",
                                                          "uint6",
                                                          "uint7",
                                                          "int1",
                                                          "int2",
                                                          "int3",
                                                          "int4",
                                                          "int5",
                                                          "int6",
                                                          "int7",
                                                          "float8_e8m0fnu",
                                                          "float4_e2m1fn_x2"};

constexpr std::string_view kDtypesOfCollectives =
    "float32, float64, float16, bfloat16, int32, int64, uint8 and bool";
constexpr std::string_view kDtypesOfPrograms =
    "float32, float64, float16, bfloat16, int32, int64, uint8, bool, int8, float8_e4m3fn and "
    "float8_e5m2";

}  // namespace

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

std::string DtypeText(ScalarType dtype) {
  const auto number = static_cast<size_t>(dtype);
  if (number < kDtypeNames.size()) return std::string(kDtypeNames[number]);
  return fmt::format("of PyTorch's number {}", number);
}

bool IsOfCollectives(ScalarType dtype) {
  const std::optional<cotune_dtype> own = DtypeOf(dtype);
  return own && *own <= COTUNE_U8;
}

OperatorError DtypeRefusal(ScalarType dtype, std::string_view collective) {
  return OperatorError(fmt::format("cotune: {} does not take {}; it takes {}", collective,
                                   DtypeText(dtype), kDtypesOfCollectives));
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
    throw OperatorError(fmt::format("cotune: {} {} of a program is {}; programs take {}", what,
                                    index + 1, DtypeText(dtype), kDtypesOfPrograms));
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
