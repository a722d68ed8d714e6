#include "core/problem/program.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "core/base/check.h"
#include "core/base/sha256.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// The dtype in which a collective moves values. It knows none of the 8-bit dtypes but u8, and adds
// up none of them.
Dtype TravellingDtype(Dtype dtype) {
  return KindOf(dtype) == NumberKind::kStored ? Dtype::kU8 : dtype;
}

const CollectiveNode& CollectiveAt(const ProgramGraph& graph, size_t node) {
  return std::get<CollectiveNode>(graph.nodes()[node]);
}

// Whether a collective's value overwrites the input that is its operand.
bool IsInPlace(const ProgramGraph& graph, size_t node) {
  const ValueIndex operand = CollectiveAt(graph, node).operand;
  return std::any_of(graph.outputs().begin(), graph.outputs().end(),
                     [&](const ProgramOutput& output) {
                       return output.value == graph.value_of_node(node) && output.into == operand;
                     });
}

// The larger of the operand and the value of a collective, by which its bytes are counted.
const ValueType& WholeType(const ProgramGraph& graph, size_t node) {
  const CollectiveNode& collective = CollectiveAt(graph, node);
  return collective.collective == Collective::kAllGather ? graph.type(graph.value_of_node(node))
                                                         : graph.type(collective.operand);
}

ProblemClass ClassIn(const ProgramGraph& graph, size_t node, const GroupShape& group) {
  const CollectiveNode& collective = CollectiveAt(graph, node);
  ProblemClass cls;
  cls.collective = collective.collective;
  cls.dtype = TravellingDtype(graph.type(collective.operand).dtype);
  cls.reduction = collective.reduction;
  cls.root = collective.root;
  cls.memory = group.memory;
  cls.world_size = group.world_size;
  cls.ranks_per_node = group.ranks_per_node;
  // The ranks of a broadcast that are not its root cannot tell.
  cls.in_place = collective.collective != Collective::kBroadcast && IsInPlace(graph, node);
  return cls;
}

// The collective that the size of a program is counted by: the first one with R rows.
size_t AnchorOf(const ProgramGraph& graph) {
  for (const size_t node : graph.collectives()) {
    if (WholeType(graph, node).rows == Rows::kAll) return node;
  }
  return graph.collectives().front();
}

// The rows of the operand and of the value of a collective that has one dimension.
std::pair<Rows, Rows> RowsAround(Collective collective) {
  return {collective == Collective::kAllGather ? Rows::kShare : Rows::kAll,
          collective == Collective::kReduceScatter ? Rows::kShare : Rows::kAll};
}

}  // namespace

Program::Program(ProgramGraph graph, const ProblemClass& anchor, bool rounds_values)
    : graph_(std::move(graph)),
      anchor_(anchor),
      rounds_values_(rounds_values),
      digest_(Sha256Prefix(ToText())) {}

Result<Program> Program::SingleCollective(const ProblemClass& cls) {
  COTUNE_RETURN_IF_ERROR(Validate(cls));
  ProgramParts parts;
  parts.inputs.push_back({"x", {cls.dtype, RowsAround(cls.collective).first, 1}});
  parts.nodes.emplace_back(CollectiveNode{cls.collective, cls.reduction, cls.root, 0});
  parts.outputs.push_back({1});
  COTUNE_TRY(ProgramGraph graph, ProgramGraph::Make(std::move(parts)));
  return Program(std::move(graph), cls);
}

Result<Program> Program::Bind(ProgramGraph graph, const GroupShape& group) {
  COTUNE_CHECK(!graph.collectives().empty(), "a program has a collective");
  const size_t anchor = AnchorOf(graph);
  if (graph.has_rows() && WholeType(graph, anchor).rows != Rows::kAll) {
    return Fail(
        ErrorCode::kUsage, "this program cannot be tuned by size", graph.name(),
        "none of its collectives has R rows, so their bytes do not say what R is",
        "give a collective a value with R rows, or leave out the operations that have them");
  }
  for (const size_t node : graph.collectives()) {
    COTUNE_RETURN_IF_ERROR(Validate(ClassIn(graph, node, group)));
  }
  ProblemClass cls = ClassIn(graph, anchor, group);
  cls.buffer_class = group.buffers;
  if (!graph.is_single_collective()) cls.program_digest = graph.digest();
  return Program(std::move(graph), cls, group.rounds_values);
}

ProblemClass Program::ClassOf(size_t node) const {
  return is_single_collective() ? anchor_ : ClassIn(graph_, node, group());
}

Problem Program::ProblemOf(size_t node, uint64_t rows, uint64_t topology_digest) const {
  const ValueType& type = WholeType(graph_, node);
  const ProblemClass cls = ClassOf(node);
  const bool has_blocks =
      cls.collective != Collective::kAllReduce && cls.collective != Collective::kBroadcast;
  const uint64_t whole_rows = type.rows == Rows::kOne ? 1 : rows;
  const uint64_t rows_of_count =
      has_blocks ? whole_rows / static_cast<uint64_t>(cls.world_size) : whole_rows;
  return Problem{cls, rows_of_count * type.columns, topology_digest};
}

Problem Program::ProblemAt(uint64_t bytes, uint64_t topology_digest) const {
  if (!graph_.has_rows()) return ProblemAtRows(1, topology_digest);
  const ValueType& type = WholeType(graph_, AnchorOf(graph_));
  uint64_t rows = bytes / (type.columns * SizeBytes(type.dtype));
  if (graph_.needs_whole_shares()) rows -= rows % static_cast<uint64_t>(anchor_.world_size);
  return ProblemAtRows(rows, topology_digest);
}

Problem Program::ProblemAtRows(uint64_t rows, uint64_t topology_digest) const {
  for (ValueIndex value = 0; value < static_cast<ValueIndex>(graph_.value_count()); ++value) {
    const ValueType& each = graph_.type(value);
    rows = std::min(rows, (kValueBytesEnd - 1) / (each.columns * SizeBytes(each.dtype)));
  }
  const uint64_t count = ProblemOf(AnchorOf(graph_), rows, topology_digest).count;
  return Problem{anchor_, count, topology_digest};
}

uint64_t Program::RowsAt(const Problem& anchor_problem) const {
  if (!graph_.has_rows()) return 1;
  const ValueType& type = WholeType(graph_, AnchorOf(graph_));
  return anchor_problem.bytes() / SizeBytes(anchor_problem.cls.dtype) / type.columns;
}

uint64_t Program::RowsOf(ValueIndex value, uint64_t rows) const {
  switch (graph_.type(value).rows) {
    case Rows::kOne:
      return 1;
    case Rows::kAll:
      return rows;
    case Rows::kShare:
      return rows / static_cast<uint64_t>(anchor_.world_size);
  }
  return 0;
}

uint64_t Program::BytesOf(ValueIndex value, uint64_t rows) const {
  const ValueType& type = graph_.type(value);
  return RowsOf(value, rows) * type.columns * SizeBytes(type.dtype);
}

std::string Program::ToText() const {
  return fmt::format("{}\n{}", cotune::ToText(anchor_), graph_.ToText());
}

}  // namespace cotune
