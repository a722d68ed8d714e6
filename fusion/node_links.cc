#include "fusion/node_links.h"

#include <algorithm>

namespace cotune {
namespace {

// The values that a node reads, each once, ascending.
std::vector<ValueIndex> OperandsOf(const ProgramNode& node) {
  std::vector<ValueIndex> values = ValuesReadBy(node);
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

}  // namespace

NodeLinks::NodeLinks(const ProgramGraph& graph)
    : readers_(graph.value_count()), is_output_(graph.value_count()), after_(graph.nodes().size()) {
  for (size_t node = 0; node < graph.nodes().size(); ++node) {
    operands_.push_back(OperandsOf(graph.nodes()[node]));
    for (const ValueIndex value : operands_.back()) {
      readers_[static_cast<size_t>(value)].push_back(node);
    }
  }
  for (const ProgramOutput& output : graph.outputs()) {
    is_output_[static_cast<size_t>(output.value)] = true;
  }
  // Readers have larger indexes than the nodes that they read.
  for (size_t node = graph.nodes().size(); node-- > 0;) {
    for (const size_t reader : readers(graph.value_of_node(node))) {
      after_[node] |= after_[reader];
      after_[node].set(reader);
    }
  }
}

}  // namespace cotune
