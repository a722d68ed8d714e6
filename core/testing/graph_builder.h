// Writes program graphs and the bytes of their inputs in tests.
#ifndef COTUNE_CORE_TESTING_GRAPH_BUILDER_H_
#define COTUNE_CORE_TESTING_GRAPH_BUILDER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/problem/evaluated_value.h"
#include "core/problem/program_evaluator.h"
#include "core/problem/program_graph.h"
#include "gtest/gtest.h"

namespace cotune {

inline Operand Of(ValueIndex value) { return {.value = value, .literal = 0}; }
inline Operand Literally(double literal) { return {.value = -1, .literal = literal}; }

class GraphBuilder {
 public:
  ValueIndex Input(Dtype dtype, Rows rows, uint32_t columns, bool is_replicated = false,
                   bool is_never_fused = false) {
    const std::string name = "input" + std::to_string(parts_.inputs.size());
    parts_.inputs.push_back({name, {dtype, rows, columns}, is_replicated, is_never_fused});
    return static_cast<ValueIndex>(parts_.inputs.size()) - 1;
  }
  ValueIndex Compute(Op op, std::vector<Operand> operands, std::array<double, 2> constants = {},
                     Dtype to = Dtype::kF32) {
    return Append(ComputeNode{op, std::move(operands), constants, to});
  }
  ValueIndex Collect(Collective collective, ValueIndex operand,
                     Reduction reduction = Reduction::kNone, int32_t root = 0) {
    return Append(CollectiveNode{collective, reduction, root, operand});
  }
  ProgramGraph Finish(std::vector<ProgramOutput> outputs, bool is_part = false) {
    parts_.outputs = std::move(outputs);
    Result<ProgramGraph> graph = ProgramGraph::Make(parts_, is_part);
    EXPECT_TRUE(graph.has_value()) << graph.error().ToText();
    return *graph;
  }
  ProgramGraph Part(ValueIndex output) { return Finish({{output, -1}}, true); }

 private:
  ValueIndex Append(ProgramNode node) {
    parts_.nodes.push_back(std::move(node));
    return static_cast<ValueIndex>(parts_.inputs.size() + parts_.nodes.size()) - 1;
  }
  ProgramParts parts_;
};

// The bytes of these numbers, rounded to the dtype.
inline std::vector<std::byte> BytesOf(Dtype dtype, const std::vector<double>& numbers) {
  EvaluatedValue value;
  value.type = {dtype, Rows::kAll, 1};
  value.rows = numbers.size();
  const bool is_integer =
      dtype == Dtype::kI8 || dtype == Dtype::kU8 || dtype == Dtype::kI32 || dtype == Dtype::kI64;
  for (const double each : numbers) {
    if (is_integer) {
      value.integers.push_back(static_cast<int64_t>(each));
    } else {
      value.floats.push_back({each, 0});
    }
  }
  return Encode(value);
}

template <typename T>
std::vector<std::byte> Stored(const std::vector<T>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

// The only output of a part on one rank.
inline EvaluatedValue EvaluatePart(const ProgramGraph& graph, uint64_t rows,
                                   std::vector<std::vector<std::byte>> inputs) {
  const auto result = EvaluateProgram(graph, rows, 1, {std::move(inputs)});
  EXPECT_TRUE(result.has_value()) << result.error().ToText();
  return result->at(0).at(0);
}

}  // namespace cotune

#endif  // COTUNE_CORE_TESTING_GRAPH_BUILDER_H_
