// Builds parts by hand, and computes them one element after the other.
#ifndef COTUNE_PLUGINS_SDK_TESTING_PART_BUILDER_H_
#define COTUNE_PLUGINS_SDK_TESTING_PART_BUILDER_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "plugins/sdk/program.h"

namespace cotune::sdk {

// An operand of a node: a value, or a number.
struct PartOperand {
  PartOperand(int value) : value(value) {}  // NOLINT(google-explicit-constructor)
  static PartOperand Literal(double number) {
    PartOperand operand(-1);
    operand.number = number;
    return operand;
  }
  int value;
  double number = 0;
};

// `rows` is that of values of COTUNE_ROWS_ALL, `share_rows` that of COTUNE_ROWS_SHARE.
class PartBuilder {
 public:
  explicit PartBuilder(uint64_t rows, uint64_t share_rows = 0)
      : rows_(rows), share_rows_(share_rows) {}
  // Inputs come before nodes.
  int Input(ValueDtype dtype, uint64_t columns, uint32_t rows_kind = COTUNE_ROWS_ALL);
  // Shape and dtype follow from the operands as the header of the extension says.
  int Node(uint32_t kind, std::vector<PartOperand> operands, double first = 0, double second = 0);
  int Cast(int value, ValueDtype dtype);
  void Output(int value, int into = -1);
  Program program;

 private:
  int Append(Value value);
  uint64_t rows_;
  uint64_t share_rows_;
};

// Elements in memory.
struct PartArray {
  ValueDtype dtype = ValueDtype::kF32;
  std::vector<std::byte> bytes;
};

// What a part gives for these inputs, from single elements in the arithmetic of their lane. All
// operations but exp, log, tanh, erf and what is made of them are exact; those are the nearest f32
// of the standard library's double.
std::vector<PartArray> NaivePart(const Program& program, const std::vector<PartArray>& inputs);

// One element as a number, exactly (i64 beyond 2^53 excepted).
double PartElement(const PartArray& array, size_t index);
void SetPartElement(PartArray& array, size_t index, double number);
size_t PartBytes(ValueDtype dtype);

}  // namespace cotune::sdk

#endif  // COTUNE_PLUGINS_SDK_TESTING_PART_BUILDER_H_
