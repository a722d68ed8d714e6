#include "plugins/sdk/testing/part_builder.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "plugins/sdk/float16.h"

namespace cotune::sdk {
namespace {

// One number of a value: a float, or an integer. Integers of each width wrap around in their own.
struct Number {
  double real = 0;
  int64_t integer = 0;
};

bool IsInteger(ValueDtype dtype) { return !IsFloat(dtype); }

int64_t Wrapped(int64_t value, ValueDtype dtype) {
  switch (dtype) {
    case ValueDtype::kI32:
      return static_cast<int32_t>(value);
    case ValueDtype::kU8:
      return static_cast<uint8_t>(value);
    case ValueDtype::kI8:
      return static_cast<int8_t>(value);
    default:
      return value;
  }
}

// The nearest number of a small float, by trying all 256 patterns: shares nothing with the code
// under test.
struct Format8 {
  int exponent_bits;
  int mantissa_bits;
  bool has_infinity;
};
double ToReal(uint8_t pattern, const Format8& format) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int exponent = (pattern >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
  const int mantissa = pattern & ((1 << format.mantissa_bits) - 1);
  const double sign = (pattern & 0x80) != 0 ? -1 : 1;
  const bool is_top = exponent == (1 << format.exponent_bits) - 1;
  if (is_top && format.has_infinity) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if ((pattern & 0x7f) == 0x7f) return std::numeric_limits<double>::quiet_NaN();
  const double fraction = std::ldexp(mantissa, -format.mantissa_bits);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias)
                               : std::ldexp(1 + fraction, exponent - bias));
}
uint8_t ToPattern(double real, const Format8& format) {
  const uint8_t sign = std::signbit(real) ? 0x80 : 0;
  const uint8_t beyond = format.has_infinity ? 0x7c : 0x7f;
  if (std::isnan(real)) return sign | 0x7f;
  const double size = std::abs(real);
  uint8_t best = 0;
  for (uint8_t p = 0; p < beyond; ++p) {
    const double error = std::abs(ToReal(p, format) - size);
    const double best_error = std::abs(ToReal(best, format) - size);
    if (error < best_error || (error == best_error && p % 2 == 0)) best = p;
  }
  // Beyond the middle between the largest number and the one that would follow it.
  const double largest = ToReal(beyond - 1, format);
  const double step = largest - ToReal(beyond - 2, format);
  const bool even = (beyond - 1) % 2 == 0;
  if (size > largest + step / 2 || (size == largest + step / 2 && !even)) best = beyond;
  return sign | best;
}
constexpr Format8 kE4M3{4, 3, false};
constexpr Format8 kE5M2{5, 2, true};

// The nearest float with `bits` of mantissa and exponents from `lowest` on.
double NearestOf(double real, int bits, int lowest, double largest) {
  if (real == 0 || !std::isfinite(real)) return real;
  const int exponent = std::max(std::ilogb(real), lowest);
  const double unit = std::ldexp(1.0, exponent - bits);
  const double rounded = std::nearbyint(real / unit) * unit;
  if (std::abs(rounded) > largest) {
    return std::copysign(std::numeric_limits<double>::infinity(), real);
  }
  return std::copysign(rounded, real);
}

double Rounded(double real, ValueDtype dtype) {
  switch (dtype) {
    case ValueDtype::kF16:
      return NearestOf(real, 10, -14, 65504);
    case ValueDtype::kBf16:
      return NearestOf(real, 7, -126, std::ldexp(255.0, 120));
    case ValueDtype::kF8E4M3:
      return ToReal(ToPattern(real, kE4M3), kE4M3);
    case ValueDtype::kF8E5M2:
      return ToReal(ToPattern(real, kE5M2), kE5M2);
    case ValueDtype::kF32:
      return static_cast<double>(static_cast<float>(real));
    default:
      return real;
  }
}

// f64 computes in double; the other floats in f32, which double rounds to correctly.
double InLane(double real, ValueDtype dtype) {
  return dtype == ValueDtype::kF64 ? real : static_cast<double>(static_cast<float>(real));
}

double Function(uint32_t kind, double x) {
  switch (kind) {
    case COTUNE_NODE_NEG:
      return -x;
    case COTUNE_NODE_ABS:
      return std::abs(x);
    case COTUNE_NODE_RELU:
      return x < 0 ? 0 : x;
    case COTUNE_NODE_EXP:
      return std::exp(x);
    case COTUNE_NODE_LOG:
      return std::log(x);
    case COTUNE_NODE_TANH:
      return std::tanh(x);
    case COTUNE_NODE_SIGMOID:
      return 1 / (1 + std::exp(-x));
    case COTUNE_NODE_SILU:
      return x * (1 / (1 + std::exp(-x)));
    case COTUNE_NODE_GELU_ERF:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case COTUNE_NODE_GELU_TANH:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case COTUNE_NODE_SQRT:
      return std::sqrt(x);
    case COTUNE_NODE_ROUND:
      return std::nearbyint(x);
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

double Extreme(double x, double y, bool is_min) {
  if (std::isnan(x) || std::isnan(y)) return std::numeric_limits<double>::quiet_NaN();
  if (x == y) return y;
  return (x < y) == is_min ? x : y;
}

Number Float(const ProgramNode& node, ValueDtype dtype, const std::vector<Number>& x) {
  Number result;
  const double a = x[0].real;
  const double b = x.size() > 1 ? x[1].real : 0;
  switch (node.kind) {
    case COTUNE_NODE_ADD:
      result.real = a + b;
      break;
    case COTUNE_NODE_SUB:
      result.real = a - b;
      break;
    case COTUNE_NODE_MUL:
      result.real = a * b;
      break;
    case COTUNE_NODE_DIV:
      result.real = a / b;
      break;
    case COTUNE_NODE_MIN:
    case COTUNE_NODE_MAX:
      result.real = Extreme(a, b, node.kind == COTUNE_NODE_MIN);
      break;
    case COTUNE_NODE_CLAMP:
      result.real = a;
      if (a < InLane(node.constants[0], dtype)) result.real = node.constants[0];
      if (a > InLane(node.constants[1], dtype)) result.real = node.constants[1];
      break;
    case COTUNE_NODE_LESS:
      result.integer = a < b ? 1 : 0;
      break;
    case COTUNE_NODE_EQUAL:
      result.integer = a == b ? 1 : 0;
      break;
    case COTUNE_NODE_RSQRT:
      result.real = 1 / InLane(std::sqrt(a), dtype);
      break;
    default:
      result.real = Function(node.kind, a);
  }
  result.real = InLane(result.real, dtype);
  return result;
}

Number Integer(const ProgramNode& node, ValueDtype dtype, const std::vector<Number>& x) {
  const int64_t a = x[0].integer;
  const int64_t b = x.size() > 1 ? x[1].integer : 0;
  const auto u = static_cast<uint64_t>(a);
  const auto v = static_cast<uint64_t>(b);
  Number result;
  switch (node.kind) {
    case COTUNE_NODE_ADD:
      result.integer = static_cast<int64_t>(u + v);
      break;
    case COTUNE_NODE_SUB:
      result.integer = static_cast<int64_t>(u - v);
      break;
    case COTUNE_NODE_MUL:
      result.integer = static_cast<int64_t>(u * v);
      break;
    case COTUNE_NODE_MIN:
      result.integer = std::min(a, b);
      break;
    case COTUNE_NODE_MAX:
      result.integer = std::max(a, b);
      break;
    case COTUNE_NODE_NEG:
      result.integer = static_cast<int64_t>(0 - u);
      break;
    case COTUNE_NODE_ABS:
      result.integer = a < 0 ? static_cast<int64_t>(0 - u) : a;
      break;
    case COTUNE_NODE_RELU:
      result.integer = std::max<int64_t>(a, 0);
      break;
    case COTUNE_NODE_CLAMP:
      result.integer = std::clamp<int64_t>(a, std::llround(std::ceil(node.constants[0])),
                                           std::llround(std::floor(node.constants[1])));
      break;
    case COTUNE_NODE_LESS:
      result.integer = a < b ? 1 : 0;
      return result;
    case COTUNE_NODE_EQUAL:
      result.integer = a == b ? 1 : 0;
      return result;
    default:
      result.integer = std::numeric_limits<int64_t>::max();
  }
  result.integer = Wrapped(result.integer, dtype);
  return result;
}

int64_t Truncated(double real, ValueDtype dtype) {
  int64_t low = std::numeric_limits<int64_t>::min();
  int64_t high = std::numeric_limits<int64_t>::max();
  if (dtype == ValueDtype::kI32) low = -2147483648LL, high = 2147483647;
  if (dtype == ValueDtype::kU8) low = 0, high = 255;
  if (dtype == ValueDtype::kI8) low = -128, high = 127;
  if (std::isnan(real)) return 0;
  if (real <= static_cast<double>(low)) return low;
  if (real >= static_cast<double>(high)) return high;
  return static_cast<int64_t>(real);
}

Number Converted(Number x, ValueDtype from, ValueDtype to) {
  Number result;
  if (IsInteger(from) && IsInteger(to)) {
    result.integer = Wrapped(x.integer, to);
  } else if (IsInteger(to)) {
    result.integer = Truncated(x.real, to);
  } else if (IsInteger(from)) {
    result.real = to == ValueDtype::kF64 ? static_cast<double>(x.integer)
                                         : static_cast<double>(static_cast<float>(x.integer));
  } else {
    result.real = InLane(x.real, to);
  }
  return result;
}

// The tree as its definition says it, by recursion.
double Fold(const std::vector<double>& leaves, size_t first, size_t stride, bool is_sum,
            ValueDtype dtype) {
  if (stride >= leaves.size()) return leaves[first];
  const double low = Fold(leaves, first, stride * 2, is_sum, dtype);
  const double high = Fold(leaves, first + stride, stride * 2, is_sum, dtype);
  return is_sum ? InLane(low + high, dtype) : Extreme(low, high, false);
}

double Reduced(const std::vector<Number>& row, bool is_sum, ValueDtype dtype) {
  std::vector<double> leaves;
  for (size_t c = 0; c < row.size(); ++c) {
    if (c % 8 == 0) {
      leaves.push_back(row[c].real);
    } else {
      leaves.back() = is_sum ? InLane(leaves.back() + row[c].real, dtype)
                             : Extreme(leaves.back(), row[c].real, false);
    }
  }
  leaves.resize(std::bit_ceil(leaves.size()),
                is_sum ? -0.0 : -std::numeric_limits<double>::infinity());
  // The highest bit of the index is folded first: those that differ in it are added at the bottom.
  return Fold(leaves, 0, 1, is_sum, dtype);
}

Number LiteralIn(double number, ValueDtype dtype) {
  Number result;
  if (IsInteger(dtype)) {
    result.integer = Truncated(number, dtype);
  } else {
    result.real = InLane(number, dtype);
  }
  return result;
}

class Interpreter {
 public:
  explicit Interpreter(const Program& program) : program_(program) {}

  std::vector<PartArray> Run(const std::vector<PartArray>& inputs) {
    for (int i = 0; i < program_.input_count; ++i) values_.push_back(Read(inputs[i], i));
    for (const ProgramNode& node : program_.nodes) values_.push_back(Compute(node));
    std::vector<PartArray> outputs;
    for (const int output : program_.outputs) {
      PartArray array{program_.values[output].dtype, {}};
      array.bytes.resize(values_[output].size() * PartBytes(array.dtype));
      for (size_t i = 0; i < values_[output].size(); ++i) Write(array, i, values_[output][i]);
      outputs.push_back(std::move(array));
    }
    return outputs;
  }

 private:
  std::vector<Number> Read(const PartArray& array, int index) const {
    const Value& type = program_.values[index];
    std::vector<Number> numbers(type.rows * type.columns);
    for (size_t i = 0; i < numbers.size(); ++i) {
      if (array.dtype == ValueDtype::kI64) {
        std::memcpy(&numbers[i].integer, array.bytes.data() + 8 * i, 8);
      } else {
        numbers[i].real = PartElement(array, i);
        if (IsInteger(array.dtype)) numbers[i].integer = static_cast<int64_t>(numbers[i].real);
      }
    }
    return numbers;
  }
  static void Write(PartArray& array, size_t index, const Number& number) {
    if (array.dtype == ValueDtype::kI64) {
      std::memcpy(array.bytes.data() + 8 * index, &number.integer, 8);
    } else {
      SetPartElement(array, index,
                     IsInteger(array.dtype) ? static_cast<double>(number.integer) : number.real);
    }
  }

  std::vector<Number> Compute(const ProgramNode& node) const {
    const Value& type = program_.values[values_.size()];
    // Nodes that read an output of the part read what is in memory.
    const bool is_output = std::count(program_.outputs.begin(), program_.outputs.end(),
                                      static_cast<int32_t>(values_.size())) != 0;
    const bool is_small = type.dtype == ValueDtype::kF8E4M3 || type.dtype == ValueDtype::kF8E5M2;
    const bool rounds = program_.rounds_values || is_small || is_output;
    std::vector<Number> result;
    for (uint64_t row = 0; row < type.rows; ++row) {
      for (uint64_t column = 0; column < type.columns; ++column) {
        Number number = ComputeOne(node, type, row, column);
        if (rounds) number.real = Rounded(number.real, type.dtype);
        result.push_back(number);
      }
    }
    return result;
  }

  Number At(int index, uint64_t row, uint64_t column) const {
    const Value& type = program_.values[index];
    const uint64_t r = type.rows_kind == COTUNE_ROWS_ONE ? 0 : row;
    const uint64_t c = type.columns == 1 ? 0 : column;
    return values_[index][r * type.columns + c];
  }

  Number ComputeOne(const ProgramNode& node, const Value& type, uint64_t row,
                    uint64_t column) const {
    ValueDtype dtype = type.dtype;
    for (int o = node.operand_count - 1; o >= (node.kind == COTUNE_NODE_WHERE ? 1 : 0); --o) {
      if (node.operands[o] >= 0) dtype = program_.values[node.operands[o]].dtype;
    }
    if (node.kind == COTUNE_NODE_ROW_SUM || node.kind == COTUNE_NODE_ROW_MAX) {
      std::vector<Number> all;
      for (uint64_t c = 0; c < program_.values[node.operands[0]].columns; ++c) {
        all.push_back(At(node.operands[0], row, c));
      }
      return {.real = Reduced(all, node.kind == COTUNE_NODE_ROW_SUM, dtype)};
    }
    std::vector<Number> x;
    for (int o = 0; o < node.operand_count; ++o) {
      x.push_back(node.operands[o] < 0 ? LiteralIn(node.literals[o], dtype)
                                       : At(node.operands[o], row, column));
    }
    if (node.kind == COTUNE_NODE_WHERE) return x[0].integer != 0 ? x[1] : x[2];
    if (node.kind == COTUNE_NODE_CAST) return Converted(x[0], dtype, type.dtype);
    return IsInteger(dtype) ? Integer(node, dtype, x) : Float(node, dtype, x);
  }

  const Program& program_;
  std::vector<std::vector<Number>> values_;
};

}  // namespace

int PartBuilder::Append(Value value) {
  program.values.push_back(value);
  return static_cast<int>(program.values.size()) - 1;
}

int PartBuilder::Input(ValueDtype dtype, uint64_t columns, uint32_t rows_kind) {
  ++program.input_count;
  const uint64_t rows = rows_kind == COTUNE_ROWS_ALL ? rows_ : share_rows_;
  return Append({.dtype = dtype,
                 .rows_kind = rows_kind,
                 .rows = rows_kind == COTUNE_ROWS_ONE ? 1 : rows,
                 .columns = columns});
}

int PartBuilder::Node(uint32_t kind, std::vector<PartOperand> operands, double first,
                      double second) {
  ProgramNode node{.kind = kind, .operand_count = static_cast<int>(operands.size())};
  node.constants = {first, second};
  Value type{.dtype = ValueDtype::kF32, .rows_kind = COTUNE_ROWS_ONE, .rows = 1, .columns = 1};
  for (size_t o = 0; o < operands.size(); ++o) {
    node.operands[o] = operands[o].value;
    node.literals[o] = operands[o].number;
    if (operands[o].value < 0) continue;
    const Value& operand = program.values[operands[o].value];
    type.dtype = operand.dtype;
    type.columns = std::max(type.columns, operand.columns);
    if (operand.rows_kind == COTUNE_ROWS_ONE) continue;
    type.rows_kind = operand.rows_kind;
    type.rows = operand.rows;
  }
  if (kind == COTUNE_NODE_LESS || kind == COTUNE_NODE_EQUAL) type.dtype = ValueDtype::kU8;
  if (kind == COTUNE_NODE_ROW_SUM || kind == COTUNE_NODE_ROW_MAX) {
    type.columns = 1;
    if (type.dtype != ValueDtype::kF64) type.dtype = ValueDtype::kF32;
  }
  program.nodes.push_back(node);
  return Append(type);
}

int PartBuilder::Cast(int value, ValueDtype dtype) {
  const int cast = Node(COTUNE_NODE_CAST, {value});
  program.values[cast].dtype = dtype;
  return cast;
}

void PartBuilder::Output(int value, int into) {
  program.outputs.push_back(value);
  program.output_into.push_back(into);
}

std::vector<PartArray> NaivePart(const Program& program, const std::vector<PartArray>& inputs) {
  return Interpreter(program).Run(inputs);
}

size_t PartBytes(ValueDtype dtype) {
  switch (dtype) {
    case ValueDtype::kF64:
    case ValueDtype::kI64:
      return 8;
    case ValueDtype::kF32:
    case ValueDtype::kI32:
      return 4;
    case ValueDtype::kF16:
    case ValueDtype::kBf16:
      return 2;
    default:
      return 1;
  }
}

double PartElement(const PartArray& array, size_t index) {
  const std::byte* at = array.bytes.data() + index * PartBytes(array.dtype);
  const auto read = [&](auto value) {
    std::memcpy(&value, at, sizeof(value));
    return value;
  };
  switch (array.dtype) {
    case ValueDtype::kF64:
      return read(double());
    case ValueDtype::kF32:
      return read(float());
    case ValueDtype::kI64:
      return static_cast<double>(read(int64_t()));
    case ValueDtype::kI32:
      return read(int32_t());
    case ValueDtype::kF16:
      return F32FromF16(read(uint16_t()));
    case ValueDtype::kBf16:
      return F32FromBf16(read(uint16_t()));
    case ValueDtype::kU8:
      return read(uint8_t());
    case ValueDtype::kI8:
      return read(int8_t());
    case ValueDtype::kF8E4M3:
      return ToReal(read(uint8_t()), kE4M3);
    case ValueDtype::kF8E5M2:
      return ToReal(read(uint8_t()), kE5M2);
  }
  return 0;
}

void SetPartElement(PartArray& array, size_t index, double number) {
  std::byte* at = array.bytes.data() + index * PartBytes(array.dtype);
  const auto write = [&](auto value) { std::memcpy(at, &value, sizeof(value)); };
  switch (array.dtype) {
    case ValueDtype::kF64:
      return write(number);
    case ValueDtype::kF32:
      return write(static_cast<float>(number));
    case ValueDtype::kI64:
      return write(Truncated(number, array.dtype));
    case ValueDtype::kI32:
      return write(static_cast<int32_t>(Truncated(number, array.dtype)));
    case ValueDtype::kF16:
      return write(F16FromF32(static_cast<float>(Rounded(number, array.dtype))));
    case ValueDtype::kBf16:
      return write(Bf16FromF32(static_cast<float>(Rounded(number, array.dtype))));
    case ValueDtype::kU8:
      return write(static_cast<uint8_t>(Truncated(number, array.dtype)));
    case ValueDtype::kI8:
      return write(static_cast<int8_t>(Truncated(number, array.dtype)));
    case ValueDtype::kF8E4M3:
      return write(ToPattern(number, kE4M3));
    case ValueDtype::kF8E5M2:
      return write(ToPattern(number, kE5M2));
  }
}

}  // namespace cotune::sdk
