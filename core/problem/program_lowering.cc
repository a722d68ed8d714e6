// Replaces compounds by primitive operations: ProgramGraph::Lower.
#include <array>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/check.h"
#include "core/problem/program_graph.h"

namespace cotune {
namespace {

// The smallest scale: a row of zeros is quantized by it.
constexpr double kScaleMin = 1e-12;

// The largest value of a dtype that floats are quantized to.
double LargestOf(Dtype dtype) {
  if (dtype == Dtype::kI8) return 127;
  return dtype == Dtype::kF8E4M3 ? 448 : 57344;
}

class Lowering {
 public:
  explicit Lowering(const ProgramGraph& graph) : graph_(graph) {
    parts_.name = graph.name();
    parts_.inputs = graph.inputs();
    for (size_t i = 0; i < parts_.inputs.size(); ++i) {
      new_of_.push_back(static_cast<ValueIndex>(i));
      dtypes_.push_back(parts_.inputs[i].type.dtype);
    }
  }

  ProgramParts Run() {
    for (const ProgramNode& node : graph_.nodes()) {
      if (const auto* collective = std::get_if<CollectiveNode>(&node)) {
        CollectiveNode copy = *collective;
        copy.operand = New(copy.operand);
        dtypes_.push_back(dtypes_[static_cast<size_t>(copy.operand)]);
        parts_.nodes.emplace_back(copy);
        new_of_.push_back(Last());
        continue;
      }
      new_of_.push_back(Lower(std::get<ComputeNode>(node)));
    }
    for (const ProgramOutput& output : graph_.outputs()) {
      parts_.outputs.push_back({New(output.value), output.into});
    }
    return std::move(parts_);
  }

 private:
  ValueIndex New(ValueIndex value) const { return new_of_[static_cast<size_t>(value)]; }
  ValueIndex Last() const {
    return static_cast<ValueIndex>(parts_.inputs.size() + parts_.nodes.size()) - 1;
  }
  static Operand Of(ValueIndex value) { return {value, 0}; }
  static Operand Literal(double number) { return {-1, number}; }

  ValueIndex Add(Op op, std::vector<Operand> operands, Dtype dtype,
                 std::array<double, 2> constants = {}) {
    parts_.nodes.emplace_back(ComputeNode{.op = op,
                                          .operands = std::move(operands),
                                          .constants = constants,
                                          .to = op == Op::kCast ? dtype : Dtype::kF32});
    dtypes_.push_back(dtype);
    return Last();
  }
  // The value in the dtype, which costs nothing where it has it.
  ValueIndex In(ValueIndex value, Dtype dtype) {
    if (dtypes_[static_cast<size_t>(value)] == dtype) return value;
    return Add(Op::kCast, {Of(value)}, dtype);
  }

  ValueIndex Lower(const ComputeNode& node) {
    std::vector<Operand> operands = node.operands;
    for (Operand& operand : operands) {
      if (!operand.is_literal()) operand.value = New(operand.value);
    }
    const OpTraits& traits = TraitsOf(node.op);
    const ValueIndex first = operands.front().value;
    const Dtype dtype = first >= 0 ? dtypes_[static_cast<size_t>(first)] : Dtype::kF32;
    if (!traits.is_compound()) return AddPrimitive(node, operands);
    // Compounds compute in f32, or in f64.
    const Dtype wide = dtype == Dtype::kF64 ? Dtype::kF64 : Dtype::kF32;
    const ValueIndex x = In(first, wide);
    const auto columns = static_cast<double>(graph_.type(node.operands.front().value).columns);
    switch (node.op) {
      case Op::kRowMean:
        return Mean(x, columns, wide);
      case Op::kRowMeanSquare:
        return Mean(Add(Op::kMul, {Of(x), Of(x)}, wide), columns, wide);
      case Op::kRmsNorm: {
        const ValueIndex square = Mean(Add(Op::kMul, {Of(x), Of(x)}, wide), columns, wide);
        const ValueIndex scaled = Normed(x, square, node.constants[0], wide);
        const ValueIndex gamma = In(operands[1].value, wide);
        return In(Add(Op::kMul, {Of(scaled), Of(gamma)}, wide), dtype);
      }
      case Op::kLayerNorm: {
        const ValueIndex centered = Add(Op::kSub, {Of(x), Of(Mean(x, columns, wide))}, wide);
        const ValueIndex square =
            Mean(Add(Op::kMul, {Of(centered), Of(centered)}, wide), columns, wide);
        const ValueIndex scaled = Normed(centered, square, node.constants[0], wide);
        const ValueIndex gamma = In(operands[1].value, wide);
        const ValueIndex beta = In(operands[2].value, wide);
        const ValueIndex gained = Add(Op::kMul, {Of(scaled), Of(gamma)}, wide);
        return In(Add(Op::kAdd, {Of(gained), Of(beta)}, wide), dtype);
      }
      case Op::kSoftmax: {
        const ValueIndex largest = Add(Op::kRowMax, {Of(x)}, wide);
        const ValueIndex power =
            Add(Op::kExp, {Of(Add(Op::kSub, {Of(x), Of(largest)}, wide))}, wide);
        const ValueIndex sum = Add(Op::kRowSum, {Of(power)}, wide);
        return In(Add(Op::kDiv, {Of(power), Of(sum)}, wide), dtype);
      }
      case Op::kQuantizeScale: {
        const ValueIndex largest = Add(Op::kRowMax, {Of(Add(Op::kAbs, {Of(x)}, wide))}, wide);
        const ValueIndex safe = Add(Op::kMax, {Of(largest), Literal(kScaleMin)}, wide);
        return Add(Op::kMul, {Of(safe), Literal(1 / LargestOf(node.to))}, wide);
      }
      case Op::kQuantize: {
        const double largest = LargestOf(node.to);
        ValueIndex value = Add(Op::kDiv, {Of(x), operands[1]}, wide);
        if (node.to == Dtype::kI8) value = Add(Op::kRound, {Of(value)}, wide);
        value = Add(Op::kClamp, {Of(value)}, wide, {-largest, largest});
        return In(value, node.to);
      }
      default:
        break;
    }
    COTUNE_CHECK(false, "every compound has its primitive operations");
    return 0;
  }

  ValueIndex AddPrimitive(const ComputeNode& node, const std::vector<Operand>& operands) {
    // The result's dtype follows from the operands as the verifier says; the graph has it already.
    const size_t index = new_of_.size();
    const Dtype dtype = graph_.type(static_cast<ValueIndex>(index)).dtype;
    const bool widens = node.op == Op::kRowSum || node.op == Op::kRowMax;
    if (!widens) return Add(node.op, operands, dtype, node.constants);
    return Add(node.op, {Of(In(operands.front().value, dtype))}, dtype);
  }

  ValueIndex Mean(ValueIndex value, double columns, Dtype dtype) {
    const ValueIndex sum = Add(Op::kRowSum, {Of(value)}, dtype);
    return Add(Op::kMul, {Of(sum), Literal(1 / columns)}, dtype);
  }
  // x / sqrt(square + eps)
  ValueIndex Normed(ValueIndex x, ValueIndex square, double eps, Dtype dtype) {
    const ValueIndex safe = Add(Op::kAdd, {Of(square), Literal(eps)}, dtype);
    const ValueIndex factor = Add(Op::kRsqrt, {Of(safe)}, dtype);
    return Add(Op::kMul, {Of(x), Of(factor)}, dtype);
  }

  const ProgramGraph& graph_;
  ProgramParts parts_;
  std::vector<ValueIndex> new_of_;  // of each value of the graph
  std::vector<Dtype> dtypes_;       // of each value of the lowered graph
};

}  // namespace

ProgramGraph ProgramGraph::Lower() const {
  auto lowered = Verify(Lowering(*this).Run(), collectives_.empty());
  COTUNE_CHECK(lowered.has_value(), "a lowered graph is one, too");
  return std::move(*lowered);
}

}  // namespace cotune
