// The graph of a program: inputs, collectives and local operations, outputs. It knows nothing of a
// group, so that a compiler can make one before any rank runs.
#ifndef COTUNE_CORE_PROBLEM_PROGRAM_GRAPH_H_
#define COTUNE_CORE_PROBLEM_PROGRAM_GRAPH_H_

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/status.h"
#include "core/problem/op.h"
#include "core/problem/problem.h"

namespace cotune {

// An index into the values of a program: inputs first, then one value a node, in order.
using ValueIndex = int32_t;

// The rows of a value: one, R, or R / world_size. R is the one dimension that calls may choose.
enum class Rows : uint8_t { kOne = 1, kAll = 2, kShare = 3 };

// A value is contiguous and row-major.
struct ValueType {
  Dtype dtype = Dtype::kF32;
  Rows rows = Rows::kAll;
  uint32_t columns = 1;
  bool operator==(const ValueType&) const = default;
};

// A value that enters the program from outside. is_replicated is the caller's promise that it is
// the same on every rank. is_never_fused ("nofuse" in a text) keeps all operations that read it out
// of regions with a collective; no right result depends on it.
struct ProgramInput {
  std::string name;  // for messages; not part of the canonical text
  ValueType type;
  bool is_replicated = false;
  bool is_never_fused = false;
};

struct CollectiveNode {
  Collective collective = Collective::kAllReduce;
  Reduction reduction = Reduction::kNone;
  int32_t root = 0;
  ValueIndex operand = 0;
  bool operator==(const CollectiveNode&) const = default;
};

// Whether two numbers are written alike in a text: NaN is equal to NaN, and -0 is not 0.
inline bool IsSameNumber(double a, double b) {
  return std::isnan(a) ? std::isnan(b) : std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

// An operand of a local operation: a value, or a number that stands for a value of one row and one
// column.
struct Operand {
  ValueIndex value = -1;
  double literal = 0;  // where value is -1
  bool is_literal() const { return value < 0; }
  bool operator==(const Operand& other) const {
    return value == other.value && IsSameNumber(literal, other.literal);
  }
};

// Operands of one row or one column are repeated over the rows or columns of the others. Operands
// have one dtype, which is that of the result; exceptions are in op.h.
struct ComputeNode {
  Op op = Op::kAdd;
  std::vector<Operand> operands;
  std::array<double, 2> constants{};
  Dtype to = Dtype::kF32;  // of operations with "to="; else kF32
  bool operator==(const ComputeNode& other) const {
    return op == other.op && operands == other.operands && to == other.to &&
           IsSameNumber(constants[0], other.constants[0]) &&
           IsSameNumber(constants[1], other.constants[1]);
  }
};

// Rules of kCast. Float to float: to nearest, ties to even; beyond the range: infinity, and NaN for
// f8_e4m3, which has none. Float to integer: toward zero, clamped to the range, NaN gives 0.
// Integer to integer: wraps around. Integer to float: to nearest.

using ProgramNode = std::variant<CollectiveNode, ComputeNode>;
// "all_reduce", "add".
std::string_view Name(const ProgramNode& node);
// The values that a node reads; one that it reads twice comes twice.
std::vector<ValueIndex> ValuesReadBy(const ProgramNode& node);

struct ProgramOutput {
  ValueIndex value = 0;
  int32_t into = -1;  // the input that it overwrites; -1: a buffer of its own
  bool operator==(const ProgramOutput&) const = default;
};

// A graph as it is written down, before it is verified.
struct ProgramParts {
  std::string name;  // for people; not part of the canonical text
  std::vector<ProgramInput> inputs;
  std::vector<ProgramNode> nodes;
  std::vector<ProgramOutput> outputs;
};

// What is wrong with a graph, and where.
struct GraphFault {
  ValueIndex value = -1;  // the input or node at fault; -1: an output, or the graph as a whole
  int operand = -1;       // of the node; -1: the node as a whole
  int output = -1;        // the output at fault
  std::string cause;
  std::string next_step;
};

// Limits of a graph; more is refused.
inline constexpr size_t kProgramTextBytesMax = 64 * 1024;
inline constexpr size_t kProgramNodesMax = 64;
inline constexpr size_t kProgramInputsMax = 16;
inline constexpr size_t kProgramOutputsMax = 16;
inline constexpr int kIndependentCollectivesMax = 16;
inline constexpr int kDependentCollectivesMax = 4;  // on one path
inline constexpr uint32_t kProgramColumnsMax = 65536;
// R x columns x bytes of an element stays below this.
inline constexpr uint64_t kValueBytesEnd = uint64_t{1} << 62;

// Verified, immutable. Equal canonical text means equal graph.
class ProgramGraph {
 public:
  // Verifies: operands defined before use, shapes and dtypes that fit, at least one collective
  // unless is_part, no node without use, the limits. kUsage says what and where.
  static Result<ProgramGraph> Make(ProgramParts parts, bool is_part = false);
  // The same with the place of the fault as data, for parsers.
  static tl::expected<ProgramGraph, GraphFault> Verify(ProgramParts parts, bool is_part = false);
  // Reads a program text (docs/programs.md has the grammar). kUsage names line and column, the
  // cause and the next step.
  static Result<ProgramGraph> Parse(std::string_view text);

  const std::string& name() const { return parts_.name; }
  const std::vector<ProgramInput>& inputs() const { return parts_.inputs; }
  const std::vector<ProgramNode>& nodes() const { return parts_.nodes; }
  const std::vector<ProgramOutput>& outputs() const { return parts_.outputs; }
  // All values: inputs, then nodes.
  size_t value_count() const { return types_.size(); }
  const ValueType& type(ValueIndex value) const { return types_[static_cast<size_t>(value)]; }
  // Same on every rank, if the promises of the inputs hold.
  bool is_replicated(ValueIndex value) const { return replicated_[static_cast<size_t>(value)]; }
  bool is_input(ValueIndex value) const {
    return value < static_cast<ValueIndex>(parts_.inputs.size());
  }
  // The node that defines a value which is no input.
  const ProgramNode& node_of(ValueIndex value) const {
    return parts_.nodes[static_cast<size_t>(value) - parts_.inputs.size()];
  }
  ValueIndex value_of_node(size_t node) const {
    return static_cast<ValueIndex>(parts_.inputs.size() + node);
  }
  // Indexes of the nodes that are collectives, in order.
  const std::vector<size_t>& collectives() const { return collectives_; }
  // Whether any value has R rows or a share of them; without, the program has one size.
  bool has_rows() const { return has_rows_; }
  // Whether R must be a multiple of the world size: a value has a share of the rows, or an
  // all_to_all stands in the program.
  bool needs_whole_shares() const { return needs_whole_shares_; }
  // One collective of an input, and its value the only output.
  bool is_single_collective() const;

  // Canonical text: numbered values, no names. Parse reads it back to an equal graph.
  std::string ToText() const;
  // First 8 bytes of the SHA-256 of ToText(). The same on every rank and machine.
  uint64_t digest() const { return digest_; }
  // The same graph with compounds replaced by primitive operations.
  ProgramGraph Lower() const;
  // The nodes `nodes` (ascending indexes) as a graph of their own: inputs are the values that
  // enter, in order of their index; outputs the values in `outputs`. A graph without a collective
  // is a part.
  ProgramGraph Region(const std::vector<size_t>& nodes,
                      const std::vector<ProgramOutput>& outputs) const;

  bool operator==(const ProgramGraph& other) const;

 private:
  ProgramGraph() = default;
  ProgramParts parts_;
  std::vector<ValueType> types_;
  std::vector<bool> replicated_;
  std::vector<size_t> collectives_;
  bool has_rows_ = false;
  bool needs_whole_shares_ = false;
  uint64_t digest_ = 0;
};

}  // namespace cotune

#endif  // COTUNE_CORE_PROBLEM_PROGRAM_GRAPH_H_
