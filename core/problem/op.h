// The local operations that a program may have around its collectives.
#ifndef COTUNE_CORE_PROBLEM_OP_H_
#define COTUNE_CORE_PROBLEM_OP_H_

#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/status.h"
#include "core/problem/language.h"

namespace cotune {

// The list of language.h as an enumeration. The value of a primitive equals that of the plugin ABI.
#define COTUNE_ENUMERATOR(enumerator, code, ...) enumerator = code,
enum class Op : uint8_t { COTUNE_OPS(COTUNE_ENUMERATOR) };
#undef COTUNE_ENUMERATOR

// The rule by which the type of an operation's value follows from its operands.
enum class OpRule : uint8_t {
  kSameDtype,   // operands of one dtype, a float or an integer, which is that of the value
  kSameFloat,   // the same with floats only
  kCompares,    // operands of one dtype; the value is u8
  kSelects,     // u8, and two operands of one dtype, which is that of the value
  kCasts,       // any dtype; the value has that of "to="
  kReducesRow,  // a float; the value has one column of f32 (f64 for f64)
  kNormalises,  // a float, and operands of one row; the value is like the first
  kScales,      // a float but f64; the value is one f32 a row
  kQuantizes,   // a float but f64 and its scale; the value has the dtype of "to="
};

struct OpTraits {
  Op op;
  std::string_view name;  // in program texts
  int operands;
  OpRule rule;
  std::string_view about;  // what it gives
  // Names of the constants, "" for those it has not.
  std::string_view constants[2] = {};
  // Value of the first constant when the text leaves it out; NaN: it must be given.
  double first_default = 0;

  constexpr bool is_compound() const { return static_cast<uint8_t>(op) >= kFirstCompound; }
  // Its value has one column.
  constexpr bool is_row_reduction() const {
    return rule == OpRule::kReducesRow || rule == OpRule::kScales;
  }
  constexpr bool takes_integers() const {
    return rule == OpRule::kSameDtype || rule == OpRule::kCompares || rule == OpRule::kSelects ||
           rule == OpRule::kCasts;
  }
  // It is written with "to=".
  constexpr bool has_dtype() const {
    return rule == OpRule::kCasts || rule == OpRule::kScales || rule == OpRule::kQuantizes;
  }

 private:
  static constexpr uint8_t kFirstCompound = 64;
};

// All operations, in the order of their values.
std::span<const OpTraits> AllOps();
const OpTraits& TraitsOf(Op op);
inline std::string_view Name(Op op) { return TraitsOf(op).name; }
// nullptr: no operation has this name.
const OpTraits* FindOp(std::string_view name);

}  // namespace cotune

#endif  // COTUNE_CORE_PROBLEM_OP_H_
