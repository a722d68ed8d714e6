// A value as the evaluator of programs knows it: every element with the distance that a right
// implementation may keep from it.
#ifndef COTUNE_CORE_PROBLEM_EVALUATED_VALUE_H_
#define COTUNE_CORE_PROBLEM_EVALUATED_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "core/problem/problem.h"
#include "core/problem/program_graph.h"

namespace cotune {

// A number, and how far a right implementation may be off, absolute. The value is not rounded to
// the dtype of what holds it; the bound has room for that rounding.
//   bound 0          exactly this number (either zero for a zero); NaN for NaN
//   bound infinity   either infinity for an infinity; else nothing can be said: every number is
//                    right, and so is NaN
struct Bounded {
  double value = 0;
  double bound = 0;
};

// The bound of an integer of which nothing can be said.
inline constexpr uint64_t kAnyInteger = std::numeric_limits<uint64_t>::max();

// Row-major. Values of a float dtype are in `floats`, all others in `integers`; the other is empty.
struct EvaluatedValue {
  ValueType type;
  uint64_t rows = 0;
  std::vector<Bounded> floats;
  std::vector<int64_t> integers;
  // How far each integer may be off: those that a float was cast to, or compared to give. Empty
  // where all integers are exact.
  std::vector<uint64_t> integer_bounds;

  uint64_t elements() const { return rows * type.columns; }
};

// A value of zeros.
EvaluatedValue Zeros(const ValueType& type, uint64_t rows);
// Reads the bytes of a value; all bounds are 0. `bytes` holds rows x columns elements.
EvaluatedValue Decode(const ValueType& type, uint64_t rows, std::span<const std::byte> bytes);
// The value rounded to its dtype, to nearest even. Beyond the range: infinity, NaN for f8_e4m3.
std::vector<std::byte> Encode(const EvaluatedValue& value);
// Elements of `seen`, bytes of the value's dtype, that are not right: those further from the value
// than its bound, NaN where a number is expected, and a number where NaN is. Where the bound
// reaches the end of the dtype's range, the infinity behind it is right as well (for f8_e4m3: NaN).
// `seen` of another length is wrong in every element.
uint64_t CountWrong(const EvaluatedValue& expected, std::span<const std::byte> seen);

}  // namespace cotune

#endif  // COTUNE_CORE_PROBLEM_EVALUATED_VALUE_H_
