#include "plugins/cuda/testing/part_graph.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <set>
#include <utility>
#include <variant>

namespace cotune::cuda {
namespace {

// The words of core have the values of the ABI, or the order of the SDK.
static_assert(static_cast<uint32_t>(Op::kAdd) == COTUNE_NODE_ADD);
static_assert(static_cast<uint32_t>(Op::kCast) == COTUNE_NODE_CAST);
static_assert(static_cast<uint32_t>(Op::kRowMax) == COTUNE_NODE_ROW_MAX);
static_assert(static_cast<uint32_t>(Rows::kShare) == COTUNE_ROWS_SHARE);
static_assert(static_cast<int>(Dtype::kF32) == static_cast<int>(sdk::ValueDtype::kF32) + 1);
static_assert(static_cast<int>(Collective::kBroadcast) ==
              static_cast<int>(sdk::Collective::kBroadcast) + 1);
static_assert(static_cast<int>(Reduction::kAverage) ==
              static_cast<int>(sdk::Reduction::kAverage) + 1);
static_assert(static_cast<int>(sdk::ValueDtype::kU8) == static_cast<int>(sdk::ElementType::kU8));
static_assert(static_cast<int>(Dtype::kF8E5M2) == static_cast<int>(sdk::ValueDtype::kF8E5M2) + 1);

template <typename T>
T OrAbort(Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", result.error().ToText().c_str());
    std::abort();
  }
  return std::move(*result);
}

Dtype DtypeOf(const sdk::Value& value) {
  return static_cast<Dtype>(static_cast<int>(value.dtype) + 1);
}

sdk::Value ValueOf(const ValueType& type, uint64_t rows, uint64_t share_rows) {
  sdk::Value value;
  value.dtype = static_cast<sdk::ValueDtype>(static_cast<int>(type.dtype) - 1);
  value.rows_kind = static_cast<uint32_t>(type.rows);
  value.rows = type.rows == Rows::kOne ? 1 : type.rows == Rows::kAll ? rows : share_rows;
  value.columns = type.columns;
  return value;
}

sdk::ProgramNode ComputeOf(const ComputeNode& compute) {
  sdk::ProgramNode node;
  node.kind = static_cast<uint32_t>(compute.op);
  node.operand_count = static_cast<int>(compute.operands.size());
  for (size_t o = 0; o < compute.operands.size(); ++o) {
    node.operands[o] = compute.operands[o].value;
    node.literals[o] = compute.operands[o].literal;
  }
  node.constants = compute.constants;
  return node;
}

sdk::ProgramNode CollectiveOf(const CollectiveNode& collective, const sdk::Program& program) {
  const sdk::Value& operand = program.values[static_cast<size_t>(collective.operand)];
  sdk::ProgramNode node;
  node.kind = COTUNE_NODE_COLLECTIVE;
  node.operand_count = 1;
  node.operands[0] = collective.operand;
  node.collective = sdk::Problem{
      .collective = static_cast<sdk::Collective>(static_cast<int>(collective.collective) - 1),
      .reduction =
          static_cast<sdk::Reduction>(std::max(1, static_cast<int>(collective.reduction)) - 1),
      .type = static_cast<sdk::ElementType>(operand.dtype),
      .count = operand.rows * operand.columns,
      .root = collective.root};
  return node;
}

std::set<int32_t> NeededValues(const sdk::Program& part) {
  std::set<int32_t> needed(part.outputs.begin(), part.outputs.end());
  for (auto at = needed.rbegin(); at != needed.rend() && *at >= part.input_count; ++at) {
    const sdk::ProgramNode& node = part.nodes[static_cast<size_t>(*at - part.input_count)];
    for (int o = 0; o < node.operand_count; ++o) {
      if (node.operands[o] >= 0) needed.insert(node.operands[o]);
    }
  }
  return needed;
}

std::vector<ValueIndex> OperandsOf(const ProgramNode& node) {
  if (const auto* collective = std::get_if<CollectiveNode>(&node)) return {collective->operand};
  std::vector<ValueIndex> operands;
  for (const Operand& operand : std::get<ComputeNode>(node).operands) {
    if (!operand.is_literal()) operands.push_back(operand.value);
  }
  return operands;
}

bool IsCollective(const ProgramNode& node) { return std::holds_alternative<CollectiveNode>(node); }

// How many collectives stand in front of each node, and as many as can where that is open. What
// stands behind the same number of them is one part.
std::vector<int> DepthsOf(const ProgramGraph& graph) {
  const size_t inputs = graph.inputs().size();
  std::vector<int> depths(graph.value_count(), 0);
  std::vector<int> latest(graph.value_count(), static_cast<int>(graph.collectives().size()));
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    for (const ValueIndex operand : OperandsOf(graph.nodes()[n])) {
      depths[inputs + n] = std::max(depths[inputs + n], depths[static_cast<size_t>(operand)]);
    }
    if (IsCollective(graph.nodes()[n])) ++depths[inputs + n];
  }
  for (size_t n = graph.nodes().size(); n-- > 0;) {
    const bool is_collective = IsCollective(graph.nodes()[n]);
    int& own = latest[inputs + n];
    const bool depends_on_collective = depths[inputs + n] > 0;
    if (is_collective || depends_on_collective) own = depths[inputs + n];
    for (const ValueIndex operand : OperandsOf(graph.nodes()[n])) {
      int& before = latest[static_cast<size_t>(operand)];
      before = std::min(before, is_collective ? own - 1 : own);
    }
  }
  return latest;
}

// The outputs of a part: values that leave the program, a collective sends, or a later part reads.
std::vector<ProgramOutput> OutputsOf(const ProgramGraph& graph, const std::vector<int>& depths,
                                     int depth) {
  std::vector<ProgramOutput> outputs;
  const auto add = [&](const ProgramOutput& output) {
    if (graph.is_input(output.value) || IsCollective(graph.node_of(output.value))) return;
    if (depths[static_cast<size_t>(output.value)] != depth) return;
    const bool is_known = std::any_of(outputs.begin(), outputs.end(), [&](const auto& known) {
      return known.value == output.value;
    });
    if (!is_known) outputs.push_back(output);
  };
  for (const ProgramOutput& output : graph.outputs()) add(output);
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    const bool is_inside = !IsCollective(graph.nodes()[n]) &&
                           depths[static_cast<size_t>(graph.value_of_node(n))] == depth;
    if (is_inside) continue;
    for (const ValueIndex operand : OperandsOf(graph.nodes()[n])) add({operand, -1});
  }
  return outputs;
}

}  // namespace

sdk::Program PartOf(const ProgramGraph& part, uint64_t rows, uint64_t share_rows) {
  sdk::Program program;
  for (ValueIndex v = 0; v < static_cast<ValueIndex>(part.value_count()); ++v) {
    program.values.push_back(ValueOf(part.type(v), rows, share_rows));
    program.values.back().is_replicated = part.is_replicated(v);
  }
  program.input_count = static_cast<int>(part.inputs().size());
  for (const ProgramNode& each : part.nodes()) {
    sdk::ProgramNode node;
    if (const auto* collective = std::get_if<CollectiveNode>(&each)) {
      node = CollectiveOf(*collective, program);
    } else {
      node = ComputeOf(std::get<ComputeNode>(each));
    }
    program.nodes.push_back(node);
  }
  for (const ProgramOutput& output : part.outputs()) {
    program.outputs.push_back(output.value);
    program.output_into.push_back(output.into);
  }
  return program;
}

sdk::Program RegionOf(const ProgramGraph& region, uint64_t rows, int world_size) {
  sdk::Program program = PartOf(region, rows, rows / static_cast<uint64_t>(world_size));
  for (sdk::ProgramNode& node : program.nodes) {
    if (node.collective) node.collective->world_size = world_size;
  }
  program.digest = region.digest();
  program.text = region.ToText();
  return program;
}

ProgramGraph GraphOf(const sdk::Program& part) {
  ProgramParts parts;
  std::map<int32_t, ValueIndex> index_of;
  for (const int32_t v : NeededValues(part)) {
    const sdk::Value& value = part.values[static_cast<size_t>(v)];
    const ValueType type{DtypeOf(value), static_cast<Rows>(value.rows_kind),
                         static_cast<uint32_t>(value.columns)};
    const auto index = static_cast<ValueIndex>(index_of.size());
    index_of[v] = index;
    if (v < part.input_count) {
      parts.inputs.push_back({.name = "", .type = type});
      continue;
    }
    const sdk::ProgramNode& node = part.nodes[static_cast<size_t>(v - part.input_count)];
    ComputeNode compute;
    compute.op = static_cast<Op>(node.kind);
    compute.constants = node.constants;
    if (node.kind == COTUNE_NODE_CAST) compute.to = type.dtype;
    for (int o = 0; o < node.operand_count; ++o) {
      compute.operands.push_back(node.operands[o] < 0
                                     ? Operand{.literal = node.literals[o]}
                                     : Operand{.value = index_of.at(node.operands[o])});
    }
    parts.nodes.emplace_back(std::move(compute));
  }
  const std::vector<size_t> outputs = GraphOutputsOf(part);
  for (size_t o = 0; o < outputs.size(); ++o) {
    if (outputs[o] == parts.outputs.size()) {
      parts.outputs.push_back({index_of.at(part.outputs[o]), -1});
    }
  }
  return OrAbort(ProgramGraph::Make(std::move(parts), /*is_part=*/true));
}

std::vector<int> InputsOf(const sdk::Program& part) {
  std::vector<int> inputs;
  for (const int32_t v : NeededValues(part)) {
    if (v < part.input_count) inputs.push_back(v);
  }
  return inputs;
}

std::vector<size_t> GraphOutputsOf(const sdk::Program& part) {
  std::map<int32_t, size_t> index_of;
  std::vector<size_t> outputs;
  for (const int32_t output : part.outputs) {
    outputs.push_back(index_of.try_emplace(output, index_of.size()).first->second);
  }
  return outputs;
}

std::vector<ProgramGraph> PartsOfText(std::string_view text) {
  const ProgramGraph graph = OrAbort(ProgramGraph::Parse(text)).Lower();
  const std::vector<int> depths = DepthsOf(graph);
  std::map<int, std::vector<size_t>> nodes_of;
  for (size_t n = 0; n < graph.nodes().size(); ++n) {
    if (IsCollective(graph.nodes()[n])) continue;
    nodes_of[depths[static_cast<size_t>(graph.value_of_node(n))]].push_back(n);
  }
  std::vector<ProgramGraph> parts;
  for (const auto& [depth, nodes] : nodes_of) {
    parts.push_back(graph.Region(nodes, OutputsOf(graph, depths, depth)));
  }
  return parts;
}

}  // namespace cotune::cuda
