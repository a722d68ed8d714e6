// The local operations that a program may have around its collectives.
#ifndef COTUNE_CORE_PROBLEM_OP_H_
#define COTUNE_CORE_PROBLEM_OP_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/status.h"

namespace cotune {

// The value of a primitive equals that of the plugin ABI; append only. Compounds exist for users
// and for explanations: ProgramGraph::Lower replaces them by primitives, and no backend sees one.
enum class Op : uint8_t {
  // Elementwise. Arithmetic is f32 inside (f64 for f64; integers wrap around).
  kAdd = 1,
  kSub = 2,
  kMul = 3,
  kDiv = 4,  // floats only
  kMin = 5,  // NaN when an operand is NaN
  kMax = 6,  // the same
  kNeg = 7,
  kAbs = 8,
  kRelu = 9,  // max(x, 0)
  kGeluErf = 10,
  kGeluTanh = 11,
  kSilu = 12,
  kTanh = 13,
  kSigmoid = 14,
  kExp = 15,
  kLog = 16,
  kSqrt = 17,
  kRsqrt = 18,  // 1 / sqrt(x)
  kRound = 19,  // to the nearest integer, ties to even
  kClamp = 20,  // constants: low, high; NaN stays NaN
  kLess = 21,   // u8: 1 where a < b, else 0
  kEqual = 22,  // u8: 1 where a == b, else 0
  kWhere = 23,  // (u8 condition, a, b): a where the condition is not 0
  kCast = 24,   // to another dtype, see its rules in program_graph.h
  // Row reductions: rows x columns to rows x 1, f32 (f64 for f64).
  kRowSum = 32,
  kRowMax = 33,  // NaN when an element is NaN
  // Compounds.
  kRowMean = 64,
  kRowMeanSquare = 65,
  kRmsNorm = 66,        // (x, gamma), constants: eps
  kLayerNorm = 67,      // (x, gamma, beta), constants: eps
  kSoftmax = 68,        // over a row
  kQuantizeScale = 69,  // (x), to: the f32 scale of each row, max(|x|, 1e-12) / largest of `to`
  kQuantize = 70,       // (x, scale), to: x / scale, rounded, clamped to its range (i8: +-127)
};

struct OpTraits {
  Op op;
  std::string_view name;  // in program texts
  int operands;
  bool is_compound = false;
  bool is_row_reduction = false;  // its value has one column
  bool takes_integers = false;
  bool has_dtype = false;  // "to="
  // Names of the constants, "" for those it has not.
  std::string_view constants[2] = {};
  // Value of the first constant when the text leaves it out; NaN: it must be given.
  double first_default = 0;
};

// All operations, in the order of their values.
std::span<const OpTraits> AllOps();
const OpTraits& TraitsOf(Op op);
inline std::string_view Name(Op op) { return TraitsOf(op).name; }
// nullptr: no operation has this name.
const OpTraits* FindOp(std::string_view name);

}  // namespace cotune

#endif  // COTUNE_CORE_PROBLEM_OP_H_
