#include "plugins/cuda/parts/value_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <vector>

#include "plugins/cuda/parts/part_stages.h"

namespace cotune::cuda {
namespace {

using sdk::ProgramNode;
using sdk::ValueDtype;

template <typename T>
std::string FloatLiteral(T number, const char* suffix) {
  const char* const lane = sizeof(T) == 4 ? "float" : "double";
  if (std::isnan(number)) return fmt::format("{}(__uint_as_float(0x7FC00000u))", lane);
  if (std::isinf(number)) {
    return fmt::format("{}{}(__uint_as_float(0x7F800000u))", number < 0 ? "-" : "", lane);
  }
  // The shortest text that reads back as this number.
  std::string text = fmt::format("{}", number);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text + suffix;
}

template <typename T>
T Clamped(double number) {
  if (std::isnan(number)) return 0;
  if (number <= static_cast<double>(std::numeric_limits<T>::min())) {
    return std::numeric_limits<T>::min();
  }
  if (number >= static_cast<double>(std::numeric_limits<T>::max())) {
    return std::numeric_limits<T>::max();
  }
  return static_cast<T>(number);
}

std::string IntegerLiteral(int64_t number, ValueDtype dtype) {
  const std::string text = number == std::numeric_limits<int64_t>::min()
                               ? "-9223372036854775807LL - 1"
                               : fmt::format("{}LL", number);
  return fmt::format("{}::Lane({})", DtypeText(dtype), text);
}

// The constants of clamp, of which integers take the part of the range that they have.
std::string ConstantText(double number, ValueDtype dtype, bool is_low) {
  if (sdk::IsFloat(dtype)) return LiteralText(number, dtype);
  return LiteralText(is_low ? std::ceil(number) : std::floor(number), dtype);
}

// The operators of the language, which floats are computed with.
const char* OperatorOf(uint32_t kind) {
  switch (kind) {
    case COTUNE_NODE_ADD:
      return "+";
    case COTUNE_NODE_SUB:
      return "-";
    case COTUNE_NODE_MUL:
      return "*";
    default:
      return nullptr;
  }
}

// The function of kernels/part_operation.cuh.
const char* FunctionOf(uint32_t kind) {
  static constexpr const char* kNames[] = {
      "",    "Add",  "Sub",     "Mul",      "",      "Min",  "Max",     "Neg",
      "Abs", "Relu", "GeluErf", "GeluTanh", "Silu",  "Tanh", "Sigmoid", "Exp",
      "Log", "Sqrt", "Rsqrt",   "Round",    "Clamp", "Less", "Equal",   "Where"};
  static_assert(std::size(kNames) == COTUNE_NODE_WHERE + 1);
  return kNames[kind];
}

// A cast, or the reduction of one column, which is one.
std::string CastText(ValueDtype from, ValueDtype to, const std::string& operand) {
  const std::string from_lane = LaneText(from);
  if (from_lane == LaneText(to)) return operand;
  const bool is_wide =
      from == ValueDtype::kF64 || from == ValueDtype::kI32 || from == ValueDtype::kI64;
  if (is_wide && sdk::IsNarrowFloat(to)) return fmt::format("ToOdd({})", operand);
  return fmt::format("Cast<{}>({})", LaneText(to), operand);
}

}  // namespace

std::string UnroundedText(const sdk::Program& program, int index) {
  const ProgramNode& node = NodeOf(program, index);
  const ValueDtype dtype = OperandDtype(program, index);
  std::vector<std::string> operands;
  for (int o = 0; o < node.operand_count; ++o) {
    const bool is_condition = node.kind == COTUNE_NODE_WHERE && o == 0;
    operands.push_back(node.operands[o] >= 0
                           ? ValueName(node.operands[o])
                           : LiteralText(node.literals[o], is_condition ? ValueDtype::kU8 : dtype));
  }
  if (node.kind == COTUNE_NODE_CAST || sdk::IsRowReduction(node.kind)) {
    return CastText(dtype, program.values[static_cast<size_t>(index)].dtype, operands[0]);
  }
  const bool is_float = sdk::IsFloat(dtype);
  if (node.kind == COTUNE_NODE_DIV && is_float) {
    return fmt::format("Quotient({})", fmt::join(operands, ", "));
  }
  const char* const sign = OperatorOf(node.kind);
  if (sign != nullptr && is_float) {
    return fmt::format("{} {} {}", operands[0], sign, operands[1]);
  }
  if (node.kind == COTUNE_NODE_CLAMP) {
    operands.push_back(ConstantText(node.constants[0], dtype, true));
    operands.push_back(ConstantText(node.constants[1], dtype, false));
  }
  return fmt::format("{}({})", FunctionOf(node.kind), fmt::join(operands, ", "));
}

const char* DtypeText(ValueDtype dtype) {
  static constexpr const char* kNames[] = {"F32", "F64", "F16", "Bf16",   "I32",
                                           "I64", "U8",  "I8",  "F8E4M3", "F8E5M2"};
  return kNames[static_cast<int>(dtype)];
}

const char* LaneText(ValueDtype dtype) {
  switch (dtype) {
    case ValueDtype::kF64:
      return "double";
    case ValueDtype::kI32:
      return "int";
    case ValueDtype::kI64:
      return "long long";
    case ValueDtype::kU8:
      return "unsigned char";
    case ValueDtype::kI8:
      return "signed char";
    default:
      return "float";
  }
}

std::string LiteralText(double number, ValueDtype dtype) {
  switch (dtype) {
    case ValueDtype::kF64:
      return FloatLiteral(number, "");
    case ValueDtype::kI32:
      return IntegerLiteral(Clamped<int32_t>(number), dtype);
    case ValueDtype::kI64:
      return IntegerLiteral(Clamped<int64_t>(number), dtype);
    case ValueDtype::kU8:
      return IntegerLiteral(Clamped<uint8_t>(number), dtype);
    case ValueDtype::kI8:
      return IntegerLiteral(Clamped<int8_t>(number), dtype);
    default:
      return FloatLiteral(static_cast<float>(number), "f");
  }
}

std::string ValueName(int index) { return fmt::format("v{}", index); }

std::string ExpressionText(const sdk::Program& program, int index) {
  std::string text = UnroundedText(program, index);
  if (!sdk::IsRoundedForReaders(program, index)) return text;
  const ValueDtype dtype = program.values[static_cast<size_t>(index)].dtype;
  return fmt::format("Rounded<{}>({})", DtypeText(dtype), text);
}

}  // namespace cotune::cuda
