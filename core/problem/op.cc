#include "core/problem/op.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/base/check.h"

namespace cotune {
namespace {

constexpr double kMustBeGiven = std::numeric_limits<double>::quiet_NaN();

constexpr OpTraits Elementwise(Op op, std::string_view name, int operands, bool takes_integers) {
  return {.op = op, .name = name, .operands = operands, .takes_integers = takes_integers};
}

constexpr std::array kOps = {
    Elementwise(Op::kAdd, "add", 2, true),
    Elementwise(Op::kSub, "sub", 2, true),
    Elementwise(Op::kMul, "mul", 2, true),
    Elementwise(Op::kDiv, "div", 2, false),
    Elementwise(Op::kMin, "min", 2, true),
    Elementwise(Op::kMax, "max", 2, true),
    Elementwise(Op::kNeg, "neg", 1, true),
    Elementwise(Op::kAbs, "abs", 1, true),
    Elementwise(Op::kRelu, "relu", 1, true),
    Elementwise(Op::kGeluErf, "gelu", 1, false),
    Elementwise(Op::kGeluTanh, "gelu_tanh", 1, false),
    Elementwise(Op::kSilu, "silu", 1, false),
    Elementwise(Op::kTanh, "tanh", 1, false),
    Elementwise(Op::kSigmoid, "sigmoid", 1, false),
    Elementwise(Op::kExp, "exp", 1, false),
    Elementwise(Op::kLog, "log", 1, false),
    Elementwise(Op::kSqrt, "sqrt", 1, false),
    Elementwise(Op::kRsqrt, "rsqrt", 1, false),
    Elementwise(Op::kRound, "round", 1, false),
    OpTraits{.op = Op::kClamp,
             .name = "clamp",
             .operands = 1,
             .takes_integers = true,
             .constants = {"low", "high"},
             .first_default = kMustBeGiven},
    Elementwise(Op::kLess, "less", 2, true),
    Elementwise(Op::kEqual, "equal", 2, true),
    Elementwise(Op::kWhere, "where", 3, true),
    OpTraits{
        .op = Op::kCast, .name = "cast", .operands = 1, .takes_integers = true, .has_dtype = true},
    OpTraits{.op = Op::kRowSum, .name = "row_sum", .operands = 1, .is_row_reduction = true},
    OpTraits{.op = Op::kRowMax, .name = "row_max", .operands = 1, .is_row_reduction = true},
    OpTraits{.op = Op::kRowMean,
             .name = "row_mean",
             .operands = 1,
             .is_compound = true,
             .is_row_reduction = true},
    OpTraits{.op = Op::kRowMeanSquare,
             .name = "row_mean_square",
             .operands = 1,
             .is_compound = true,
             .is_row_reduction = true},
    OpTraits{.op = Op::kRmsNorm,
             .name = "rms_norm",
             .operands = 2,
             .is_compound = true,
             .constants = {"eps", ""},
             .first_default = 1e-6},
    OpTraits{.op = Op::kLayerNorm,
             .name = "layer_norm",
             .operands = 3,
             .is_compound = true,
             .constants = {"eps", ""},
             .first_default = 1e-5},
    OpTraits{.op = Op::kSoftmax, .name = "softmax", .operands = 1, .is_compound = true},
    OpTraits{.op = Op::kQuantizeScale,
             .name = "quantize_scale",
             .operands = 1,
             .is_compound = true,
             .is_row_reduction = true,
             .has_dtype = true},
    OpTraits{.op = Op::kQuantize,
             .name = "quantize",
             .operands = 2,
             .is_compound = true,
             .has_dtype = true},
};

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
