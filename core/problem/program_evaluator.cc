#include "core/problem/program_evaluator.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "core/problem/bounded.h"
#include "core/problem/evaluate_collective.h"
#include "core/problem/evaluate_compute.h"
#include "fmt/format.h"

namespace cotune {
namespace {

using Bytes = std::vector<std::byte>;

tl::unexpected<Error> CannotEvaluate(std::string where, std::string cause, std::string next_step) {
  return Fail(ErrorCode::kUsage, "this program cannot be evaluated", std::move(where),
              std::move(cause), std::move(next_step));
}

uint64_t RowsOf(const ValueType& type, uint64_t rows, int world_size) {
  switch (type.rows) {
    case Rows::kOne:
      return 1;
    case Rows::kAll:
      return rows;
    case Rows::kShare:
      break;
  }
  return rows / static_cast<uint64_t>(world_size);
}

Status CheckRanks(const ProgramGraph& graph, uint64_t rows, int world_size) {
  if (world_size < 1) {
    return CannotEvaluate("", fmt::format("a group has {} ranks", world_size), "give 1 or more");
  }
  if (graph.needs_whole_shares() && rows % static_cast<uint64_t>(world_size) != 0) {
    return CannotEvaluate("",
                          fmt::format("{} rows are no whole shares for {} ranks", rows, world_size),
                          fmt::format("give a multiple of {} rows", world_size));
  }
  for (const size_t node : graph.collectives()) {
    const int32_t root = std::get<CollectiveNode>(graph.nodes()[node]).root;
    if (root < 0 || root >= world_size) {
      return CannotEvaluate(fmt::format("node {}", node),
                            fmt::format("the root is rank {} of {}", root, world_size),
                            "give a root that is a rank of the group");
    }
  }
  return {};
}

Status CheckInputs(const ProgramGraph& graph, uint64_t rows, int world_size,
                   const std::vector<std::vector<Bytes>>& inputs) {
  if (inputs.size() != static_cast<size_t>(world_size)) {
    return CannotEvaluate(
        "", fmt::format("there are inputs of {} ranks for {}", inputs.size(), world_size),
        "give the inputs of each rank");
  }
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    if (inputs[rank].size() != graph.inputs().size()) {
      return CannotEvaluate(
          fmt::format("rank {}", rank),
          fmt::format("there are {} inputs for {}", inputs[rank].size(), graph.inputs().size()),
          "give each input of the program");
    }
    for (size_t input = 0; input < inputs[rank].size(); ++input) {
      const ValueType& type = graph.inputs()[input].type;
      const uint64_t expected =
          RowsOf(type, rows, world_size) * type.columns * SizeBytes(type.dtype);
      if (inputs[rank][input].size() == expected) continue;
      return CannotEvaluate(
          fmt::format("rank {}, input {}", rank, input),
          fmt::format("there are {} bytes for {}", inputs[rank][input].size(), expected),
          "give rows x columns elements");
    }
  }
  return {};
}

// The bound of a value that is rounded to the dtype, or is not: rounding keeps the order of
// numbers, so that the ends of the interval round to the ends of what the value can be.
double BoundOfRounded(Dtype dtype, double magnitude, double bound) {
  const double low = std::fabs(magnitude - RoundTo(dtype, magnitude - bound));
  const double high = std::fabs(magnitude - RoundTo(dtype, magnitude + bound));
  return std::max({bound, low, high});
}

// Adds the rounding to a narrow dtype to the elements that it may change.
EvaluatedValue WithRounding(EvaluatedValue value) {
  const FloatFormat& format = FormatOf(value.type.dtype);
  for (Bounded& each : value.floats) {
    if (!std::isfinite(each.value) || each.bound == kInfinity) continue;
    if (each.bound == 0 && Holds(format, each.value)) continue;
    const double magnitude = std::fabs(each.value);
    const double rounded = each.bound + Ulp(format, magnitude + each.bound) / 2;
    // A value that rounds to the largest number of the dtype does not leave its range.
    const bool is_last =
        magnitude + each.bound < format.overflow && magnitude + rounded >= format.overflow;
    each.bound = is_last ? BoundOfRounded(value.type.dtype, magnitude, each.bound) : rounded;
  }
  return value;
}

// Whether rounding to the dtype may give another infinity or NaN. f8_e4m3 has no infinity: it gives
// NaN for one.
bool IsBeyondRange(Dtype dtype, const Bounded& each) {
  if (std::isinf(each.value)) return dtype == Dtype::kF8E4M3;
  return std::isfinite(each.value) &&
         std::fabs(each.value) + each.bound >= FormatOf(dtype).overflow;
}

// A value as other nodes have it: not every implementation rounds what they compute with, so that
// elements beyond the range of their dtype may be infinite for one and finite for another.
EvaluatedValue AsOperand(EvaluatedValue value) {
  for (Bounded& each : value.floats) {
    if (IsBeyondRange(value.type.dtype, each)) each = kAnything;
  }
  return value;
}

// A value as other nodes have it where every implementation rounds it to its dtype first: the
// bounds reach from the one end of the interval, rounded, to the other. Rounding keeps the order of
// numbers, and mostly both ends round to the same one.
EvaluatedValue AsRoundedOperand(EvaluatedValue value) {
  for (Bounded& each : value.floats) {
    if (std::isnan(each.value) || each.bound == kInfinity) continue;
    const double low = RoundTo(value.type.dtype, each.value - each.bound);
    const double high = RoundTo(value.type.dtype, each.value + each.bound);
    // Beyond the range of f8_e4m3 there is NaN on both sides, with numbers between them.
    const bool both_are_nan =
        std::isnan(low) && std::isnan(high) && each.bound < std::abs(each.value);
    if (low == high || both_are_nan) {
      each = {low, 0};
    } else if (std::isfinite(low) && std::isfinite(high)) {
      each = {(low + high) / 2, (high - low) / 2};
    } else {
      each = kAnything;
    }
  }
  return AsOperand(std::move(value));
}

// A value of the program on all ranks: as it leaves, and as other nodes have it.
struct Evaluated {
  RankValues leaving;
  RankValues operands;
};

bool IsShared(const RankValues& values, size_t rank) {
  return rank > 0 && values[rank] == values[rank - 1];
}

Evaluated Input(const ValueType& type, uint64_t rows, size_t input,
                const std::vector<std::vector<Bytes>>& inputs) {
  RankValues values;
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    if (rank > 0 && inputs[rank][input] == inputs[rank - 1][input]) {
      values.push_back(values.back());
    } else {
      values.push_back(
          std::make_shared<const EvaluatedValue>(Decode(type, rows, inputs[rank][input])));
    }
  }
  return {values, values};
}

bool MayOverflow(const EvaluatedValue& value) {
  return std::any_of(value.floats.begin(), value.floats.end(),
                     [&](const Bounded& each) { return IsBeyondRange(value.type.dtype, each); });
}

// The place at which the value of a node is rounded to its dtype.
enum class Rounding : uint8_t {
  kInCollective,  // before it is moved, or while it is reduced
  kForReaders,    // at the node, for all that read it
  kPerhaps,       // at the node, or only as it leaves a step
};

// By value: outputs of the program and operands of its collectives lie in memory, and whether a
// node that reads one runs in the same step must not change its bits. Other values may be in
// memory between two steps, or not.
std::vector<Rounding> RoundingsOf(const ProgramGraph& graph) {
  std::vector<Rounding> roundings(graph.inputs().size() + graph.nodes().size(), Rounding::kPerhaps);
  for (const ProgramOutput& output : graph.outputs()) {
    roundings[static_cast<size_t>(output.value)] = Rounding::kForReaders;
  }
  for (const size_t node : graph.collectives()) {
    const auto& collective = std::get<CollectiveNode>(graph.nodes()[node]);
    roundings[static_cast<size_t>(collective.operand)] = Rounding::kForReaders;
  }
  for (const size_t node : graph.collectives()) {
    roundings[static_cast<size_t>(graph.value_of_node(node))] = Rounding::kInCollective;
  }
  return roundings;
}

EvaluatedValue OperandOf(const EvaluatedValue& computed, const EvaluatedValue& leaving,
                         Rounding rounding) {
  return rounding == Rounding::kForReaders ? AsRoundedOperand(computed) : AsOperand(leaving);
}

Evaluated OfNode(RankValues computed, Dtype dtype, Rounding rounding) {
  if (!IsFloat(dtype) || !IsNarrow(dtype)) return {computed, computed};
  Evaluated result{RankValues(computed.size()), RankValues(computed.size())};
  for (size_t rank = 0; rank < computed.size(); ++rank) {
    if (computed[rank] == nullptr) continue;
    if (IsShared(computed, rank)) {
      result.leaving[rank] = result.leaving[rank - 1];
      result.operands[rank] = result.operands[rank - 1];
      continue;
    }
    result.leaving[rank] =
        rounding == Rounding::kInCollective
            ? computed[rank]
            : std::make_shared<const EvaluatedValue>(WithRounding(*computed[rank]));
    const std::shared_ptr<const EvaluatedValue>& leaving = result.leaving[rank];
    result.operands[rank] =
        rounding == Rounding::kForReaders || MayOverflow(*leaving)
            ? std::make_shared<const EvaluatedValue>(OperandOf(*computed[rank], *leaving, rounding))
            : leaving;
  }
  return result;
}

// Evaluates a local operation on each of some ranks, once for ranks with the same operands.
RankValues ComputeOnRanks(const ComputeNode& node, const ValueType& type, uint64_t rows,
                          size_t world_size, RankRange ranks,
                          const std::vector<Evaluated>& values) {
  RankValues results(world_size);
  std::vector<const EvaluatedValue*> operands(node.operands.size());
  for (size_t rank = ranks.first; rank < ranks.end; ++rank) {
    bool is_shared = rank > ranks.first;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (node.operands[i].is_literal()) continue;
      const RankValues& of_ranks = values[static_cast<size_t>(node.operands[i].value)].operands;
      operands[i] = of_ranks[rank].get();
      is_shared = is_shared && IsShared(of_ranks, rank);
    }
    results[rank] =
        is_shared
            ? results[rank - 1]
            : std::make_shared<const EvaluatedValue>(EvaluateCompute(node, type, rows, operands));
  }
  return results;
}

// The values of a graph, in order. No other rank needs more of a rank than what enters the last
// collective: that one and what stands behind it are evaluated for `ranks` only.
Result<std::vector<Evaluated>> EvaluateValues(const ProgramGraph& graph, uint64_t rows,
                                              int world_size,
                                              const std::vector<std::vector<Bytes>>& inputs,
                                              RankRange ranks) {
  COTUNE_RETURN_IF_ERROR(CheckRanks(graph, rows, world_size));
  COTUNE_RETURN_IF_ERROR(CheckInputs(graph, rows, world_size, inputs));
  std::vector<Evaluated> values;
  for (size_t input = 0; input < graph.inputs().size(); ++input) {
    const ValueType& type = graph.inputs()[input].type;
    values.push_back(Input(type, RowsOf(type, rows, world_size), input, inputs));
  }
  const std::vector<Rounding> roundings = RoundingsOf(graph);
  const size_t last = graph.collectives().empty() ? 0 : graph.collectives().back();
  for (size_t node = 0; node < graph.nodes().size(); ++node) {
    const ValueIndex index = graph.value_of_node(node);
    const ValueType& type = graph.type(index);
    const Rounding rounding = roundings[static_cast<size_t>(index)];
    const uint64_t own_rows = RowsOf(type, rows, world_size);
    const RankRange wanted = node < last ? RankRange{0, inputs.size()} : ranks;
    if (const auto* collective = std::get_if<CollectiveNode>(&graph.nodes()[node])) {
      const Evaluated& operand = values[static_cast<size_t>(collective->operand)];
      const bool reduces = Reduces(collective->collective);
      RankValues result = EvaluateCollective(*collective, type, own_rows,
                                             reduces ? operand.operands : operand.leaving, wanted);
      values.push_back(OfNode(std::move(result), type.dtype, rounding));
    } else {
      const auto& compute = std::get<ComputeNode>(graph.nodes()[node]);
      values.push_back(
          OfNode(ComputeOnRanks(compute, type, own_rows, inputs.size(), wanted, values), type.dtype,
                 rounding));
    }
  }
  return values;
}

EvaluatedOutputs OutputsOn(size_t rank, const ProgramGraph& graph,
                           const std::vector<Evaluated>& values) {
  EvaluatedOutputs outputs;
  for (const ProgramOutput& output : graph.outputs()) {
    outputs.push_back(values[static_cast<size_t>(output.value)].leaving[rank]);
  }
  return outputs;
}

}  // namespace

Result<std::vector<std::vector<EvaluatedValue>>> EvaluateProgram(
    const ProgramGraph& graph, uint64_t rows, int world_size,
    const std::vector<std::vector<Bytes>>& inputs) {
  COTUNE_TRY(const auto values,
             EvaluateValues(graph, rows, world_size, inputs, {0, inputs.size()}));
  std::vector<std::vector<EvaluatedValue>> outputs;
  for (size_t rank = 0; rank < inputs.size(); ++rank) {
    std::vector<EvaluatedValue>& of_rank = outputs.emplace_back();
    for (const auto& output : OutputsOn(rank, graph, values)) of_rank.push_back(*output);
  }
  return outputs;
}

Result<EvaluatedOutputs> EvaluateProgramOnRank(const ProgramGraph& graph, uint64_t rows,
                                               int world_size, int rank,
                                               const std::vector<std::vector<Bytes>>& inputs) {
  if (rank < 0 || rank >= world_size) {
    return CannotEvaluate(fmt::format("rank {}", rank),
                          fmt::format("a group of {} ranks has no such rank", world_size),
                          "give a rank of the group");
  }
  const auto own = static_cast<size_t>(rank);
  COTUNE_TRY(const auto values, EvaluateValues(graph, rows, world_size, inputs, {own, own + 1}));
  return OutputsOn(own, graph, values);
}

}  // namespace cotune
