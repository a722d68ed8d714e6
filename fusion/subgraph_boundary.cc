#include "fusion/subgraph_boundary.h"

#include <algorithm>
#include <set>

namespace cotune {

SubgraphBoundary SubgraphBoundary::Of(const ProgramGraph& graph, const std::vector<size_t>& nodes) {
  return Of(graph, NodeLinks(graph), nodes);
}

SubgraphBoundary SubgraphBoundary::Of(const ProgramGraph& graph, const NodeLinks& links,
                                      const std::vector<size_t>& nodes) {
  const std::set<size_t> inside(nodes.begin(), nodes.end());
  const auto is_inside = [&](size_t node) { return inside.contains(node); };
  SubgraphBoundary boundary;
  std::set<ValueIndex> entering;
  for (const size_t node : inside) {
    bool is_first = true;
    for (const ValueIndex value : links.operands(node)) {
      const bool is_own = !graph.is_input(value) && is_inside(NodeOf(graph, value));
      if (!is_own) entering.insert(value);
      is_first = is_first && !is_own;
    }
    if (is_first) boundary.first_nodes.push_back(node);
    const ValueIndex value = graph.value_of_node(node);
    const std::vector<size_t>& readers = links.readers(value);
    const auto within = std::count_if(readers.begin(), readers.end(), is_inside);
    const auto outside = static_cast<int>(static_cast<std::ptrdiff_t>(readers.size()) - within);
    if (within == 0) boundary.last_nodes.push_back(node);
    if (outside == 0 && !links.is_output(value)) continue;
    boundary.outputs.push_back(value);
    boundary.outside_readers.push_back(outside);
  }
  boundary.inputs.assign(entering.begin(), entering.end());
  return boundary;
}

}  // namespace cotune
