// From the ABI's program to one that a backend can rely on, with a reason for every no.
#ifndef COTUNE_PLUGINS_SDK_PROGRAM_H_
#define COTUNE_PLUGINS_SDK_PROGRAM_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plugins/api/cotune_program_v1.h"
#include "plugins/sdk/failure.h"
#include "plugins/sdk/problem.h"

namespace cotune::sdk {

// The dtypes of values: those of collectives and three of 8 bits.
enum class ValueDtype : uint8_t { kF32, kF64, kF16, kBf16, kI32, kI64, kU8, kI8, kF8E4M3, kF8E5M2 };

constexpr bool IsFloat(ValueDtype dtype) {
  return dtype == ValueDtype::kF32 || dtype == ValueDtype::kF64 || dtype == ValueDtype::kF16 ||
         dtype == ValueDtype::kBf16 || dtype == ValueDtype::kF8E4M3 || dtype == ValueDtype::kF8E5M2;
}

constexpr bool IsFloat8(ValueDtype dtype) {
  return dtype == ValueDtype::kF8E4M3 || dtype == ValueDtype::kF8E5M2;
}

// Returns true if the dtype holds fewer numbers than the f32 that its values are computed in.
constexpr bool IsNarrowFloat(ValueDtype dtype) {
  return dtype == ValueDtype::kF16 || dtype == ValueDtype::kBf16 || IsFloat8(dtype);
}

// Bytes of one element.
size_t ElementBytes(ValueDtype dtype);

constexpr bool IsRowReduction(uint32_t kind) {
  return kind == COTUNE_NODE_ROW_SUM || kind == COTUNE_NODE_ROW_MAX;
}

// Returns how many operands a kind of node has; 0: the kind is not known.
constexpr int OperandsOf(uint32_t kind) {
  if (kind == COTUNE_NODE_COLLECTIVE) return 1;
  if (kind >= COTUNE_NODE_ADD && kind <= COTUNE_NODE_MAX) return 2;
  if (kind >= COTUNE_NODE_NEG && kind <= COTUNE_NODE_CLAMP) return 1;
  if (kind == COTUNE_NODE_LESS || kind == COTUNE_NODE_EQUAL) return 2;
  if (kind == COTUNE_NODE_WHERE) return 3;
  if (kind == COTUNE_NODE_CAST || IsRowReduction(kind)) return 1;
  return 0;
}

// Contiguous, row-major.
struct Value {
  ValueDtype dtype = ValueDtype::kF32;
  uint32_t rows_kind = COTUNE_ROWS_ALL;
  uint64_t rows = 0;
  uint64_t columns = 0;
  bool is_replicated = false;
  uint64_t bytes() const { return rows * columns * ElementBytes(dtype); }
};

// Values are the inputs first, then one for each node, in order.
struct ProgramNode {
  uint32_t kind = COTUNE_NODE_ADD;
  int operand_count = 0;
  std::array<int32_t, COTUNE_NODE_OPERANDS_MAX>
      operands{};  // values before this one; -1: a literal
  std::array<double, COTUNE_NODE_OPERANDS_MAX> literals{};
  std::array<double, 2> constants{};
  std::optional<Problem> collective{};  // of COTUNE_NODE_COLLECTIVE
};

// A validated program: indexes are in range, shapes and dtypes fit as the header says, and all
// numbers of bytes fit 62 bits.
struct Program {
  std::vector<Value> values;
  int input_count = 0;
  std::vector<ProgramNode> nodes;
  std::vector<int32_t> outputs;
  std::vector<int32_t> output_into;  // one for each output; -1: none
  bool rounds_values = false;
  bool is_symmetric = false;  // all operands are registered
  uint64_t digest = 0;
  std::string text;

  bool is_part() const;  // has no collective
};

// Returns true if a region or a part rounds the value of a node to its dtype before its nodes read
// it. Outputs are rounded for them as well, since a program that is cut after the output reads it
// from memory, and the bits must not depend on the cut; operands and values of collectives, since
// they lie in memory if the collective runs by itself. A value that no node reads is rounded by its
// store alone.
bool IsRoundedForReaders(const Program& program, int value);

// Returns true if the value is a cast of an input to the input's own dtype.
bool IsCopyOfInput(const Program& program, int value);

// The same program with inputs in place of their copies (IsCopyOfInput), as operands and as
// outputs. A backend that stores an output which is an input without converting it keeps all bits,
// those of NaN included. Values keep their indexes; nothing reads the copies.
Program WithoutCopies(Program program);

// COTUNE_UNSUPPORTED for what the limits rule out and for kinds that are not known,
// COTUNE_INVALID_ARGUMENT for what no program may be (an operand that is not defined before, shapes
// that do not fit). Pure.
Result<Program> CheckProgram(const cotune_program_t& program, const ProblemLimits& limits);

// Whether the addresses of a launch fit the program: not null but for values without elements, as
// aligned as their dtype, and without overlap but for an output and the input that it overwrites.
// COTUNE_INVALID_ARGUMENT. Pure.
Result<void> CheckOperands(const Program& program, const cotune_program_launch_t& launch);

// CheckOperands for the launches of one plan. Addresses that the launch before had are not looked
// at again, because the check compares all pairs of operands and is in the time of each call.
class LaunchedOperands {
 public:
  Result<void> Check(const Program& program, const cotune_program_launch_t& launch);

 private:
  std::vector<const void*> addresses_;  // inputs, then outputs; empty before the first launch
};

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_PROGRAM_H_
