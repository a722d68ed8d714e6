// The paths between the nodes of a graph.
#ifndef COTUNE_FUSION_NODE_LINKS_H_
#define COTUNE_FUSION_NODE_LINKS_H_

#include <bitset>
#include <cstddef>
#include <vector>

#include "core/problem/program_graph.h"

namespace cotune {

using NodeSet = std::bitset<kProgramNodesMax>;

// The node that defines a value which is no input.
inline size_t NodeOf(const ProgramGraph& graph, ValueIndex value) {
  return static_cast<size_t>(value) - graph.inputs().size();
}

// Immutable. It has no reference to the graph that it was made from.
class NodeLinks {
 public:
  explicit NodeLinks(const ProgramGraph& graph);

  // The values that a node reads, each once, ascending.
  const std::vector<ValueIndex>& operands(size_t node) const { return operands_[node]; }
  // The nodes that read a value, ascending.
  const std::vector<size_t>& readers(ValueIndex value) const {
    return readers_[static_cast<size_t>(value)];
  }
  // Returns true if a value is an output of the program.
  bool is_output(ValueIndex value) const { return is_output_[static_cast<size_t>(value)]; }
  // The nodes that a path leads to from this one, without itself.
  const NodeSet& after(size_t node) const { return after_[node]; }

 private:
  std::vector<std::vector<ValueIndex>> operands_;  // by node
  std::vector<std::vector<size_t>> readers_;       // by value
  std::vector<bool> is_output_;                    // by value
  std::vector<NodeSet> after_;                     // by node
};

}  // namespace cotune

#endif  // COTUNE_FUSION_NODE_LINKS_H_
