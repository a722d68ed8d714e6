// The inputs of a form's graph by those of the program that it computes.
#ifndef COTUNE_CORE_RECIPE_INPUT_MAP_H_
#define COTUNE_CORE_RECIPE_INPUT_MAP_H_

#include <cstddef>
#include <vector>

#include "core/problem/program_graph.h"

namespace cotune {

// Plain data. The graph of most forms has the inputs of the program, in order. A graph that
// computes some values on R/n rows reads this rank's rows of a replicated input of R rows (a share
// of it), and leaves out an input of which nothing else is read.
struct InputMap {
  struct Input {
    ValueIndex of_program = 0;  // an input of the program
    bool is_share = false;      // this rank's rows of it; else all rows
    bool operator==(const Input&) const = default;
  };
  std::vector<Input> inputs;  // by input of the graph
  size_t program_inputs = 0;  // as many as the program has

  // The inputs of a graph that is the program's, or has the same inputs.
  static InputMap OfProgram(const ProgramGraph& graph);

  // The inputs of the program that the shares are rows of, in the order of the graph.
  std::vector<ValueIndex> Shares() const;
  size_t share_count() const;
  // Returns true if both values are inputs of the graph with memory in common.
  bool Overlap(ValueIndex a, ValueIndex b) const;
  bool operator==(const InputMap&) const = default;
};

}  // namespace cotune

#endif  // COTUNE_CORE_RECIPE_INPUT_MAP_H_
