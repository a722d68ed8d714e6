// Evaluates one local operation on one rank; a part of the evaluator of programs.
#ifndef COTUNE_CORE_PROBLEM_EVALUATE_COMPUTE_H_
#define COTUNE_CORE_PROBLEM_EVALUATE_COMPUTE_H_

#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "core/problem/bounded.h"
#include "core/problem/evaluated_value.h"
#include "core/problem/program_graph.h"

namespace cotune {

// The values of a node's operands, nullptr for a literal.
using OperandValues = std::span<const EvaluatedValue* const>;

// The result of a node before a narrow dtype rounds it. `type` and `rows` are its own.
EvaluatedValue EvaluateCompute(const ComputeNode& node, const ValueType& type, uint64_t rows,
                               OperandValues operands);

// The operations on integers that give integers.
void EvaluateIntegers(const ComputeNode& node, OperandValues operands, EvaluatedValue& result);
// Row reductions and compounds, on floats.
void EvaluateRows(const ComputeNode& node, OperandValues operands, EvaluatedValue& result);

// The dtype of the operands that have one: not of a condition, nor of literals.
Dtype OperandDtype(const ComputeNode& node, OperandValues operands, Dtype otherwise);

struct BoundedInteger {
  int64_t value = 0;
  uint64_t bound = 0;
};

// The smallest and the largest number of a dtype of integers.
std::pair<int64_t, int64_t> RangeOf(Dtype dtype);
// Toward zero, clamped; NaN gives 0.
BoundedInteger CastToInteger(Bounded value, Dtype to);
BoundedInteger IntegerAt(const EvaluatedValue& value, uint64_t element);
void SetInteger(EvaluatedValue& result, uint64_t element, BoundedInteger value);
// kAdd, kSub, kMul, kMin or kMax.
BoundedInteger OfTwoIntegers(Op op, BoundedInteger a, BoundedInteger b, Dtype dtype);
// The sum of two bounds.
inline uint64_t SumOfBounds(uint64_t a, uint64_t b) {
  return a > kAnyInteger - b ? kAnyInteger : a + b;
}
// A number that may be one of two, and most likely is the first.
Bounded Either(Bounded chosen, Bounded other);
BoundedInteger Either(BoundedInteger chosen, BoundedInteger other);

// The element of an operand that stands at a place of the result: operands of one row or one column
// are repeated.
class Placement {
 public:
  explicit Placement(const ValueType& operand)
      : row_step_(operand.rows == Rows::kOne ? 0 : operand.columns),
        column_step_(operand.columns == 1 ? 0 : 1) {}
  Placement() = default;  // of a literal
  uint64_t operator()(uint64_t row, uint64_t column) const {
    return row * row_step_ + column * column_step_;
  }

 private:
  uint64_t row_step_ = 0;
  uint64_t column_step_ = 0;
};

// A float operand, by its places in the result.
class FloatOperand {
 public:
  FloatOperand(const ComputeNode& node, OperandValues operands, size_t index,
               const Arithmetic& arithmetic) {
    if (operands[index] == nullptr) {
      literal_ = Literal(node.operands[index].literal, arithmetic);
    } else {
      elements_ = operands[index]->floats.data();
      place_ = Placement(operands[index]->type);
    }
  }
  Bounded operator()(uint64_t row, uint64_t column) const {
    return elements_ == nullptr ? literal_ : elements_[place_(row, column)];
  }

 private:
  const Bounded* elements_ = nullptr;
  Placement place_;
  Bounded literal_;
};

// An integer operand, the same way.
class IntegerOperand {
 public:
  IntegerOperand(const ComputeNode& node, OperandValues operands, size_t index, Dtype dtype)
      : value_(operands[index]) {
    if (value_ == nullptr) {
      literal_ = CastToInteger({node.operands[index].literal, 0}, dtype);
    } else {
      place_ = Placement(value_->type);
    }
  }
  BoundedInteger operator()(uint64_t row, uint64_t column) const {
    return value_ == nullptr ? literal_ : IntegerAt(*value_, place_(row, column));
  }

 private:
  const EvaluatedValue* value_;
  Placement place_;
  BoundedInteger literal_;
};

// Calls function(element, row, column) for each element of a value.
template <typename Function>
void ForEachPlace(const EvaluatedValue& value, const Function& function) {
  uint64_t element = 0;
  for (uint64_t row = 0; row < value.rows; ++row) {
    for (uint32_t column = 0; column < value.type.columns; ++column) {
      function(element++, row, column);
    }
  }
}

}  // namespace cotune

#endif  // COTUNE_CORE_PROBLEM_EVALUATE_COMPUTE_H_
