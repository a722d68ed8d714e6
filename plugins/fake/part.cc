#include "plugins/fake/part.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/problem/evaluated_value.h"
#include "core/problem/op.h"
#include "core/problem/program_evaluator.h"
#include "core/problem/program_graph.h"

namespace cotune::fake {
namespace {

using Bytes = std::vector<std::byte>;

// The words of core, which have the values of the ABI or the order of the SDK.
static_assert(static_cast<uint32_t>(Op::kAdd) == COTUNE_NODE_ADD);
static_assert(static_cast<uint32_t>(Op::kCast) == COTUNE_NODE_CAST);
static_assert(static_cast<uint32_t>(Op::kRowMax) == COTUNE_NODE_ROW_MAX);
static_assert(static_cast<int>(Dtype::kF32) == static_cast<int>(sdk::ValueDtype::kF32) + 1);
static_assert(static_cast<int>(Dtype::kF8E5M2) == static_cast<int>(sdk::ValueDtype::kF8E5M2) + 1);

Dtype DtypeOf(const sdk::Value& value) {
  return static_cast<Dtype>(static_cast<int>(value.dtype) + 1);
}

// The values of one operation have R rows or a share of them, never both, so that its R is either.
ValueType TypeOf(const sdk::Value& value) {
  return {DtypeOf(value), value.rows_kind == COTUNE_ROWS_ONE ? Rows::kOne : Rows::kAll,
          static_cast<uint32_t>(value.columns)};
}

Bytes ReadBytes(const void* from, uint64_t count) {
  Bytes bytes(count);
  if (count > 0) std::memcpy(bytes.data(), from, count);
  return bytes;
}

// The value of one operation. It is evaluated as a program of its own, which rounds it.
sdk::Result<Bytes> RunNode(const sdk::ProgramNode& node, const sdk::Value& value,
                           const std::vector<sdk::Value>& types, const std::vector<Bytes>& values) {
  if (value.bytes() == 0) return Bytes();
  ProgramParts parts;
  ComputeNode compute;
  compute.op = static_cast<Op>(node.kind);
  compute.constants = node.constants;
  if (node.kind == COTUNE_NODE_CAST) compute.to = DtypeOf(value);
  std::vector<Bytes> inputs;
  for (int i = 0; i < node.operand_count; ++i) {
    if (node.operands[i] < 0) {
      compute.operands.push_back({.literal = node.literals[i]});
      continue;
    }
    const auto operand = static_cast<size_t>(node.operands[i]);
    compute.operands.push_back({.value = static_cast<ValueIndex>(inputs.size())});
    parts.inputs.push_back({.name = "", .type = TypeOf(types[operand])});
    inputs.push_back(values[operand]);
  }
  parts.nodes.emplace_back(std::move(compute));
  parts.outputs.push_back({.value = static_cast<ValueIndex>(inputs.size())});
  const auto graph = ProgramGraph::Make(std::move(parts), /*is_part=*/true);
  if (!graph) return sdk::Fail(COTUNE_INTERNAL, graph.error().ToText());
  const auto evaluated = EvaluateProgram(*graph, value.rows, 1, {inputs});
  if (!evaluated) return sdk::Fail(COTUNE_INTERNAL, evaluated.error().ToText());
  return Encode(evaluated->front().front());
}

}  // namespace

ProgramRun::ProgramRun(const sdk::Program& program, const void* const* inputs) : program_(program) {
  for (size_t i = 0; i < static_cast<size_t>(program.input_count); ++i) {
    values_.push_back(ReadBytes(inputs[i], program.values[i].bytes()));
  }
}

sdk::Result<const sdk::ProgramNode*> ProgramRun::Advance() {
  const auto inputs = static_cast<size_t>(program_.input_count);
  while (values_.size() < program_.values.size()) {
    const sdk::ProgramNode& node = program_.nodes[values_.size() - inputs];
    const sdk::Value& type = program_.values[values_.size()];
    if (node.collective) {
      values_.emplace_back(type.bytes());
      return &node;
    }
    COTUNE_TRY(Bytes value, RunNode(node, type, program_.values, values_));
    values_.push_back(std::move(value));
  }
  return nullptr;
}

const std::byte* ProgramRun::operand() const {
  const auto inputs = static_cast<size_t>(program_.input_count);
  const sdk::ProgramNode& node = program_.nodes[values_.size() - 1 - inputs];
  return values_[static_cast<size_t>(node.operands[0])].data();
}

void ProgramRun::WriteOutputs(void* const* outputs) const {
  for (size_t i = 0; i < program_.outputs.size(); ++i) {
    const Bytes& value = values_[static_cast<size_t>(program_.outputs[i])];
    if (!value.empty()) std::memcpy(outputs[i], value.data(), value.size());
  }
}

sdk::Result<void> RunPart(const sdk::Program& part, const void* const* inputs,
                          void* const* outputs) {
  ProgramRun run(part, inputs);
  COTUNE_RETURN_IF_ERROR(run.Advance());
  run.WriteOutputs(outputs);
  return {};
}

}  // namespace cotune::fake
