#include "core/problem/program_graph.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "core/base/check.h"
#include "core/base/sha256.h"
#include "core/problem/program_verifier.h"
#include "fmt/format.h"

namespace cotune {

tl::expected<ProgramGraph, GraphFault> ProgramGraph::Verify(ProgramParts parts, bool is_part) {
  auto values = VerifyValues(parts, is_part);
  if (!values) return tl::unexpected<GraphFault>(std::move(values.error()));
  ProgramGraph graph;
  graph.types_ = std::move(values->types);
  graph.replicated_ = std::move(values->replicated);
  graph.parts_ = std::move(parts);
  for (size_t node = 0; node < graph.parts_.nodes.size(); ++node) {
    const auto* collective = std::get_if<CollectiveNode>(&graph.parts_.nodes[node]);
    if (collective == nullptr) continue;
    graph.collectives_.push_back(node);
    if (collective->collective == Collective::kAllToAll) graph.needs_whole_shares_ = true;
  }
  for (const ValueType& type : graph.types_) {
    graph.has_rows_ = graph.has_rows_ || type.rows != Rows::kOne;
    graph.needs_whole_shares_ = graph.needs_whole_shares_ || type.rows == Rows::kShare;
  }
  graph.digest_ = Sha256Prefix(graph.ToText());
  return graph;
}

Result<ProgramGraph> ProgramGraph::Make(ProgramParts parts, bool is_part) {
  auto graph = Verify(std::move(parts), is_part);
  if (graph) return std::move(*graph);
  const GraphFault& fault = graph.error();
  std::string where;
  if (fault.value >= 0) where = fmt::format("%{}", fault.value);
  if (fault.operand >= 0) where += fmt::format(", operand {}", fault.operand + 1);
  if (fault.output >= 0) where = fmt::format("output {}", fault.output + 1);
  return Fail(ErrorCode::kUsage, "this graph is not a program", where, fault.cause,
              fault.next_step);
}

bool ProgramGraph::is_single_collective() const {
  return parts_.nodes.size() == 1 && collectives_.size() == 1 && parts_.inputs.size() == 1;
}

bool ProgramGraph::operator==(const ProgramGraph& other) const {
  const auto same_input = [](const ProgramInput& a, const ProgramInput& b) {
    return a.type == b.type && a.is_replicated == b.is_replicated &&
           a.is_never_fused == b.is_never_fused;
  };
  return parts_.nodes == other.parts_.nodes && parts_.outputs == other.parts_.outputs &&
         std::equal(parts_.inputs.begin(), parts_.inputs.end(), other.parts_.inputs.begin(),
                    other.parts_.inputs.end(), same_input);
}

std::string_view Name(const ProgramNode& node) {
  if (const auto* collective = std::get_if<CollectiveNode>(&node)) {
    return Name(collective->collective);
  }
  return Name(std::get<ComputeNode>(node).op);
}

std::vector<ValueIndex> ValuesReadBy(const ProgramNode& node) {
  if (const auto* collective = std::get_if<CollectiveNode>(&node)) return {collective->operand};
  std::vector<ValueIndex> values;
  for (const Operand& operand : std::get<ComputeNode>(node).operands) {
    if (!operand.is_literal()) values.push_back(operand.value);
  }
  return values;
}

ProgramGraph ProgramGraph::Region(const std::vector<size_t>& nodes,
                                  const std::vector<ProgramOutput>& outputs) const {
  std::set<ValueIndex> inside;
  for (const size_t node : nodes) inside.insert(value_of_node(node));
  std::map<ValueIndex, ValueIndex> index_of;  // of a value of this graph in the region
  for (const size_t node : nodes) {
    for (const ValueIndex value : ValuesReadBy(parts_.nodes[node])) {
      if (!inside.contains(value)) index_of[value] = 0;
    }
  }
  ProgramParts parts;
  for (auto& [value, index] : index_of) {
    index = static_cast<ValueIndex>(parts.inputs.size());
    const std::string name = is_input(value) ? parts_.inputs[static_cast<size_t>(value)].name : "";
    parts.inputs.push_back({name, type(value), is_replicated(value)});
  }
  for (const size_t node : nodes) {
    ProgramNode copy = parts_.nodes[node];
    if (auto* collective = std::get_if<CollectiveNode>(&copy)) {
      collective->operand = index_of.at(collective->operand);
    } else {
      for (Operand& operand : std::get<ComputeNode>(copy).operands) {
        if (!operand.is_literal()) operand.value = index_of.at(operand.value);
      }
    }
    index_of[value_of_node(node)] =
        static_cast<ValueIndex>(parts.inputs.size() + parts.nodes.size());
    parts.nodes.push_back(std::move(copy));
  }
  for (const ProgramOutput& output : outputs) {
    const auto into = output.into < 0 ? index_of.end() : index_of.find(output.into);
    parts.outputs.push_back(
        {index_of.at(output.value), into == index_of.end() ? -1 : into->second});
  }
  const bool has_collective = std::any_of(nodes.begin(), nodes.end(), [&](size_t node) {
    return std::holds_alternative<CollectiveNode>(parts_.nodes[node]);
  });
  auto region = Verify(std::move(parts), !has_collective);
  COTUNE_CHECK(region.has_value(), "a region of a verified graph is one, too");
  return std::move(*region);
}

}  // namespace cotune
