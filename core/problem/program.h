// The program: a small SSA graph of prologue nodes, collectives and epilogue nodes, frozen when it
// enters the pipeline.
#ifndef COTUNE_CORE_PROBLEM_PROGRAM_H_
#define COTUNE_CORE_PROBLEM_PROGRAM_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/status.h"
#include "core/problem/problem.h"

namespace cotune {

// An index into the values of a program: inputs first, then one value a node, in order.
using ValueIndex = int32_t;

// A value that enters the program from outside.
struct InputNode {
  std::string name;
  Dtype dtype = Dtype::kF32;
  bool operator==(const InputNode&) const = default;
};

// A collective on the group of the program.
struct CollectiveNode {
  ProblemClass cls;
  ValueIndex operand = 0;
  bool operator==(const CollectiveNode&) const = default;
};

// New kinds of node (casts, scales, norms) become further alternatives; text and digest of existing
// programs stay.
using Node = std::variant<CollectiveNode>;

// Immutable. Built once through ProgramBuilder, verified there; equal text means equal program.
class Program {
 public:
  // The program of just one collective: one input, one node, one output.
  static Result<Program> SingleCollective(const ProblemClass& cls);
  // Reads ToText's format. kUsage names line and cause.
  static Result<Program> Parse(std::string_view text);

  const std::vector<InputNode>& inputs() const { return inputs_; }
  const std::vector<Node>& nodes() const { return nodes_; }
  ValueIndex output() const { return output_; }

  // The collective that gives the program its size and its place in the dispatch table: the first
  // one.
  const ProblemClass& anchor() const;
  bool is_single_collective() const { return nodes_.size() == 1; }

  // One line a value: "%0 = input f32", "%1 = all_reduce/sum/... %0", "return %1".
  std::string ToText() const;
  // First 8 bytes of the SHA-256 of ToText(). The same on every rank and machine.
  uint64_t digest() const { return digest_; }
  bool operator==(const Program& other) const {
    return inputs_ == other.inputs_ && nodes_ == other.nodes_ && output_ == other.output_;
  }

 private:
  friend class ProgramBuilder;
  Program() = default;
  std::vector<InputNode> inputs_;
  std::vector<Node> nodes_;
  ValueIndex output_ = 0;
  uint64_t digest_ = 0;
};

// Collects inputs and nodes; Freeze verifies and gives the Program.
class ProgramBuilder {
 public:
  ValueIndex AddInput(std::string name, Dtype dtype);
  ValueIndex AddCollective(const ProblemClass& cls, ValueIndex operand);
  // kUsage when: no collective, an operand that is not defined before its use, a dtype that does
  // not match, an output that does not exist, or a class that Validate refuses.
  Result<Program> Freeze(ValueIndex output) const;

 private:
  std::vector<InputNode> inputs_;
  std::vector<Node> nodes_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_PROBLEM_PROGRAM_H_
