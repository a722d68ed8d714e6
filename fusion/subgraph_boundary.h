// The border between some nodes of a graph and the others.
#ifndef COTUNE_FUSION_SUBGRAPH_BOUNDARY_H_
#define COTUNE_FUSION_SUBGRAPH_BOUNDARY_H_

#include <cstddef>
#include <vector>

#include "core/problem/program_graph.h"
#include "fusion/node_links.h"

namespace cotune {

// Plain data; all lists are ascending.
struct SubgraphBoundary {
  std::vector<size_t> first_nodes;   // they read no value of the others
  std::vector<size_t> last_nodes;    // none of the others reads their values
  std::vector<ValueIndex> inputs;    // values from outside that a node of the set reads
  std::vector<ValueIndex> outputs;   // values that a node outside reads, or the program returns
  std::vector<int> outside_readers;  // for each of the outputs: the nodes outside that read it

  // `nodes` are indexes of nodes of the graph, in any order.
  static SubgraphBoundary Of(const ProgramGraph& graph, const std::vector<size_t>& nodes);
  // The same with the links of the graph, which many sets of nodes share.
  static SubgraphBoundary Of(const ProgramGraph& graph, const NodeLinks& links,
                             const std::vector<size_t>& nodes);
};

}  // namespace cotune

#endif  // COTUNE_FUSION_SUBGRAPH_BOUNDARY_H_
