#include "fusion/roundings.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <variant>

#include "core/base/float16.h"
#include "fusion/node_links.h"

namespace cotune {
namespace {

// Other dtypes are either as wide as the arithmetic, or their values are rounded where they are
// computed (8-bit floats), or they are integers, which wrap around where they are computed.
bool IsKeptWider(Dtype dtype) { return dtype == Dtype::kF16 || dtype == Dtype::kBf16; }

// Returns true if a 16-bit float holds the number.
bool Holds(Dtype dtype, double number) {
  if (number != number) return true;
  const auto single = static_cast<float>(number);
  const float rounded =
      dtype == Dtype::kBf16 ? F32FromBf16(Bf16FromF32(single)) : F32FromF16(F16FromF32(single));
  return static_cast<double>(rounded) == number;
}

// Returns true if each number of an 8-bit dtype is one of both 16-bit floats.
bool IsShort(Dtype dtype) {
  return dtype == Dtype::kI8 || dtype == Dtype::kU8 || dtype == Dtype::kF8E4M3 ||
         dtype == Dtype::kF8E5M2;
}

}  // namespace

std::vector<bool> RoundedBy(const Recipe& recipe) {
  const ProgramGraph& graph = recipe.graph;
  std::vector<bool> rounded(graph.value_count());
  const auto round = [&](ValueIndex value) { rounded[static_cast<size_t>(value)] = true; };
  for (size_t input = 0; input < graph.inputs().size(); ++input) rounded[input] = true;
  for (const ProgramOutput& output : graph.outputs()) round(output.value);
  for (const size_t node : graph.collectives()) {
    round(std::get<CollectiveNode>(graph.nodes()[node]).operand);
    round(graph.value_of_node(node));
  }
  std::vector<size_t> step_of(graph.nodes().size());
  for (size_t step = 0; step < recipe.steps.size(); ++step) {
    for (const size_t node : recipe.steps[step].nodes) step_of[node] = step;
  }
  const NodeLinks links(graph);
  for (size_t node = 0; node < graph.nodes().size(); ++node) {
    const ValueIndex value = graph.value_of_node(node);
    const std::vector<size_t>& readers = links.readers(value);
    if (std::any_of(readers.begin(), readers.end(),
                    [&](size_t reader) { return step_of[reader] != step_of[node]; })) {
      round(value);
    }
  }
  return rounded;
}

Roundings::Roundings(const Recipe& unfused, NumericsRule numerics)
    : graph_(unfused.graph),
      numerics_(numerics),
      rounded_(numerics == NumericsRule::kSame ? std::vector<bool>(graph_.value_count(), true)
                                               : RoundedBy(unfused)),
      exact_(graph_.value_count(), true) {
  for (size_t node = 0; node < graph_.nodes().size(); ++node) {
    const ValueIndex value = graph_.value_of_node(node);
    exact_[Index(value)] = IsExactNode(graph_.nodes()[node], graph_.type(value).dtype);
  }
}

std::optional<ValueIndex> Roundings::FirstChanged(const Recipe& recipe) const {
  if (numerics_ == NumericsRule::kSame) return std::nullopt;
  const std::vector<bool> rounded = RoundedBy(recipe);
  for (size_t value = 0; value < rounded.size(); ++value) {
    if (rounded[value] != rounded_[value] && !exact_[value]) return static_cast<ValueIndex>(value);
  }
  return std::nullopt;
}

bool Roundings::Fits(const Operand& operand, Dtype dtype) const {
  if (operand.is_literal()) return Holds(dtype, operand.literal);
  return MayBeStored(operand.value);
}

bool Roundings::IsExactNode(const ProgramNode& node, Dtype dtype) const {
  if (!IsKeptWider(dtype)) return true;
  const auto* const compute = std::get_if<ComputeNode>(&node);
  if (compute == nullptr) return false;
  const auto fits = [&](const Operand& operand) { return Fits(operand, dtype); };
  const std::vector<Operand>& operands = compute->operands;
  switch (compute->op) {
    // The result is an operand, or one with another sign, or an integer: a float either is one or
    // has bits enough for the one next to it.
    case Op::kNeg:
    case Op::kAbs:
    case Op::kRelu:
    case Op::kRound:
    case Op::kMin:
    case Op::kMax:
      return std::all_of(operands.begin(), operands.end(), fits);
    case Op::kClamp:
      return fits(operands[0]) && Holds(dtype, compute->constants[0]) &&
             Holds(dtype, compute->constants[1]);
    case Op::kWhere:
      return fits(operands[1]) && fits(operands[2]);
    case Op::kCast: {
      if (operands[0].is_literal()) return fits(operands[0]);
      const Dtype from = graph_.type(operands[0].value).dtype;
      return from == dtype ? fits(operands[0]) : IsShort(from);
    }
    default:
      // A cast to a 16-bit float is no exception: a step keeps its value in f32.
      return false;
  }
}

}  // namespace cotune
