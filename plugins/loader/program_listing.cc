#include "plugins/loader/program_listing.h"

#include <algorithm>
#include <iterator>
#include <variant>

#include "plugins/loader/choice_listing.h"

namespace cotune {
namespace {

// The codes of the primitives in the plugin ABI.
struct NodeKind {
  Op op;
  uint32_t kind;
};
constexpr NodeKind kNodeKinds[] = {
    {Op::kAdd, COTUNE_NODE_ADD},
    {Op::kSub, COTUNE_NODE_SUB},
    {Op::kMul, COTUNE_NODE_MUL},
    {Op::kDiv, COTUNE_NODE_DIV},
    {Op::kMin, COTUNE_NODE_MIN},
    {Op::kMax, COTUNE_NODE_MAX},
    {Op::kNeg, COTUNE_NODE_NEG},
    {Op::kAbs, COTUNE_NODE_ABS},
    {Op::kRelu, COTUNE_NODE_RELU},
    {Op::kGeluErf, COTUNE_NODE_GELU_ERF},
    {Op::kGeluTanh, COTUNE_NODE_GELU_TANH},
    {Op::kSilu, COTUNE_NODE_SILU},
    {Op::kTanh, COTUNE_NODE_TANH},
    {Op::kSigmoid, COTUNE_NODE_SIGMOID},
    {Op::kExp, COTUNE_NODE_EXP},
    {Op::kLog, COTUNE_NODE_LOG},
    {Op::kSqrt, COTUNE_NODE_SQRT},
    {Op::kRsqrt, COTUNE_NODE_RSQRT},
    {Op::kRound, COTUNE_NODE_ROUND},
    {Op::kClamp, COTUNE_NODE_CLAMP},
    {Op::kLess, COTUNE_NODE_LESS},
    {Op::kEqual, COTUNE_NODE_EQUAL},
    {Op::kWhere, COTUNE_NODE_WHERE},
    {Op::kCast, COTUNE_NODE_CAST},
    {Op::kRowSum, COTUNE_NODE_ROW_SUM},
    {Op::kRowMax, COTUNE_NODE_ROW_MAX},
};
constexpr bool AgreeOnKinds() {
  size_t primitives = 0;
#define COTUNE_COUNT(enumerator, code, ...) primitives += code < 64 ? 1 : 0;
  COTUNE_OPS(COTUNE_COUNT)
#undef COTUNE_COUNT
  return std::size(kNodeKinds) == primitives &&
         std::all_of(std::begin(kNodeKinds), std::end(kNodeKinds), [](const NodeKind& each) {
           return static_cast<uint32_t>(each.op) == each.kind;
         });
}
static_assert(AgreeOnKinds(), "an operation has the code of the plugin ABI");

uint64_t RowsOf(const ValueType& type, uint64_t rows, int32_t world_size) {
  if (type.rows == Rows::kOne) return 1;
  return type.rows == Rows::kAll ? rows : rows / static_cast<uint64_t>(world_size);
}

cotune_node_t ToAbi(const CollectiveNode& node) {
  cotune_node_t abi{};
  abi.struct_size = sizeof(abi);
  abi.kind = COTUNE_NODE_COLLECTIVE;
  abi.collective = static_cast<uint32_t>(node.collective);
  abi.reduction = static_cast<uint32_t>(node.reduction);
  abi.root = node.root;
  abi.operand_count = 1;
  abi.operands[0] = node.operand;
  return abi;
}

cotune_node_t ToAbi(const ComputeNode& node) {
  cotune_node_t abi{};
  abi.struct_size = sizeof(abi);
  abi.kind = static_cast<uint32_t>(node.op);
  abi.operand_count = static_cast<uint32_t>(node.operands.size());
  for (size_t i = 0; i < node.operands.size(); ++i) {
    const Operand& operand = node.operands[i];
    abi.operands[i] = operand.is_literal() ? int32_t{COTUNE_OPERAND_LITERAL} : operand.value;
    abi.literals[i] = operand.literal;
  }
  abi.constants[0] = node.constants[0];
  abi.constants[1] = node.constants[1];
  return abi;
}

}  // namespace

AbiProgram::AbiProgram(const ProgramGraph& graph, uint64_t rows, const GroupShape& group,
                       uint64_t topology_digest, bool rounds_values)
    : text_(graph.ToText()) {
  for (ValueIndex value = 0; value < static_cast<ValueIndex>(graph.value_count()); ++value) {
    const ValueType& type = graph.type(value);
    cotune_value_t abi{};
    abi.struct_size = sizeof(abi);
    abi.flags = graph.is_replicated(value) ? uint32_t{COTUNE_VALUE_REPLICATED} : 0;
    abi.dtype = ToAbi(type.dtype);
    abi.rows_kind = static_cast<uint32_t>(type.rows);
    abi.rows = RowsOf(type, rows, group.world_size);
    abi.columns = type.columns;
    values_.push_back(abi);
  }
  for (const ProgramNode& node : graph.nodes()) {
    nodes_.push_back(std::visit([](const auto& each) { return ToAbi(each); }, node));
  }
  for (const ProgramOutput& output : graph.outputs()) {
    outputs_.push_back(output.value);
    output_into_.push_back(output.into);
  }
  program_.struct_size = sizeof(program_);
  if (rounds_values) program_.flags |= COTUNE_PROGRAM_ROUNDS_VALUES;
  if (group.buffers == BufferClass::kSymmetric) program_.flags |= COTUNE_PROGRAM_SYMMETRIC;
  program_.memory_kind = static_cast<uint32_t>(group.memory);
  program_.world_size = group.world_size;
  program_.ranks_per_node = group.ranks_per_node;
  program_.topology_digest = topology_digest;
  program_.digest = graph.digest();
  program_.values = values_.data();
  program_.value_stride = sizeof(cotune_value_t);
  program_.input_count = static_cast<uint32_t>(graph.inputs().size());
  program_.nodes = nodes_.data();
  program_.node_stride = sizeof(cotune_node_t);
  program_.node_count = static_cast<uint32_t>(nodes_.size());
  program_.outputs = outputs_.data();
  program_.output_into = output_into_.data();
  program_.output_count = static_cast<uint32_t>(outputs_.size());
  program_.text = text_.c_str();
}

}  // namespace cotune
