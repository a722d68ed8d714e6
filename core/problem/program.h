// The program of a group: a graph bound to the memory and the ranks that it runs on.
#ifndef COTUNE_CORE_PROBLEM_PROGRAM_H_
#define COTUNE_CORE_PROBLEM_PROGRAM_H_

#include <cstdint>
#include <string>

#include "core/base/status.h"
#include "core/problem/problem.h"
#include "core/problem/program_graph.h"

namespace cotune {

// The part of a group, and of how it is called, that decides what a graph means.
struct GroupShape {
  MemoryKind memory = MemoryKind::kHost;
  int32_t world_size = 1;
  int32_t ranks_per_node = 1;  // on each host, 0 when they differ
  // kSymmetric: all inputs and outputs lie in memory that all ranks have registered.
  BufferClass buffers = BufferClass::kPlain;
  // Every value is rounded to its dtype for all of its readers (numerics=same). It concerns the
  // regions and parts that backends are asked for.
  bool rounds_values = false;
  bool operator==(const GroupShape&) const = default;
};

// Immutable. A single collective is the smallest program: its count is its R, as it has one column,
// and its class may have what no graph says (in place, registered buffers).
class Program {
 public:
  // The program of just one collective: one input, one node, one output.
  static Result<Program> SingleCollective(const ProblemClass& cls);
  // kUsage when the graph does not fit the group (a root that is no rank of it).
  static Result<Program> Bind(ProgramGraph graph, const GroupShape& group);

  const ProgramGraph& graph() const { return graph_; }
  GroupShape group() const {
    return {anchor_.memory, anchor_.world_size, anchor_.ranks_per_node, anchor_.buffer_class,
            rounds_values_};
  }
  // The class of the collective that gives the program its size and its place in the dispatch
  // table: the first one with R rows. With the digest of the graph, unless it is a single
  // collective.
  const ProblemClass& anchor() const { return anchor_; }
  // No more than one collective: what it is called with and tuned as does not depend on the graph.
  bool is_single_collective() const { return graph_.is_single_collective(); }

  // The class of collective `node` (an index of graph().nodes()) by itself, on plain buffers.
  ProblemClass ClassOf(size_t node) const;
  // The problem of collective `node` at R rows.
  Problem ProblemOf(size_t node, uint64_t rows, uint64_t topology_digest) const;
  // The anchor's problem at the largest R for which its bytes do not exceed `bytes`: whole rows,
  // and whole shares where the graph needs them. A program without R has one size.
  Problem ProblemAt(uint64_t bytes, uint64_t topology_digest) const;
  // The same at R rows, or at the most that memory can hold.
  Problem ProblemAtRows(uint64_t rows, uint64_t topology_digest) const;
  // R at the anchor's problem; 1 for a program without R.
  uint64_t RowsAt(const Problem& anchor_problem) const;
  // Rows of a value at R.
  uint64_t RowsOf(ValueIndex value, uint64_t rows) const;
  // Bytes of a value at R on one rank.
  uint64_t BytesOf(ValueIndex value, uint64_t rows) const;

  // Class and graph, for what the ranks compare and for digests.
  std::string ToText() const;
  // First 8 bytes of the SHA-256 of ToText(). The same on every rank and machine.
  uint64_t digest() const { return digest_; }
  bool operator==(const Program& other) const {
    return anchor_ == other.anchor_ && graph_ == other.graph_ &&
           rounds_values_ == other.rounds_values_;
  }

 private:
  Program(ProgramGraph graph, const ProblemClass& anchor, bool rounds_values = false);
  ProgramGraph graph_;
  ProblemClass anchor_;
  bool rounds_values_ = false;
  uint64_t digest_ = 0;
};

}  // namespace cotune

#endif  // COTUNE_CORE_PROBLEM_PROGRAM_H_
