#include "core/problem/op.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/base/check.h"

namespace cotune {
namespace {

constexpr double kMustBeGiven = std::numeric_limits<double>::quiet_NaN();

#define COTUNE_OP(enumerator, code, name, operands, rule, about) \
  OpTraits{Op::enumerator, name, operands, OpRule::rule, about},
constexpr std::array kWords = {COTUNE_OPS(COTUNE_OP)};
#undef COTUNE_OP

// The same with the constants of the operations that have any.
constexpr auto kOps = [] {
  auto ops = kWords;
  for (OpTraits& each : ops) {
    if (each.op == Op::kClamp) {
      each.constants[0] = "low";
      each.constants[1] = "high";
      each.first_default = kMustBeGiven;
    }
    if (each.op == Op::kRmsNorm || each.op == Op::kLayerNorm) {
      each.constants[0] = "eps";
      each.first_default = each.op == Op::kRmsNorm ? 1e-6 : 1e-5;
    }
  }
  return ops;
}();

}  // namespace

std::span<const OpTraits> AllOps() { return kOps; }

const OpTraits& TraitsOf(Op op) {
  const auto* const found =
      std::find_if(kOps.begin(), kOps.end(), [&](const OpTraits& each) { return each.op == op; });
  COTUNE_CHECK(found != kOps.end(), "every operation has its traits");
  return *found;
}

const OpTraits* FindOp(std::string_view name) {
  const auto* const found = std::find_if(kOps.begin(), kOps.end(),
                                         [&](const OpTraits& each) { return each.name == name; });
  return found == kOps.end() ? nullptr : found;
}

}  // namespace cotune
