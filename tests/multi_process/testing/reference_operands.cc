#include "tests/multi_process/testing/reference_operands.h"

#include "core/problem/program_data.h"
#include "core/problem/program_evaluator.h"
#include "fmt/format.h"

namespace cotune {
namespace {

using Bytes = std::vector<std::byte>;

}  // namespace

ReferenceOperands::ReferenceOperands(const Program& program, uint64_t rows, int rank,
                                     uint32_t salt) {
  const ProgramGraph& graph = program.graph();
  const int world_size = program.group().world_size;
  const ProgramDataSet data{.rows = rows, .world_size = world_size, .salt = salt};
  std::vector<std::vector<Bytes>> of_ranks;
  for (int each = 0; each < world_size; ++each) {
    auto& inputs = of_ranks.emplace_back();
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      const auto value = static_cast<ValueIndex>(i);
      const ValueType& type = graph.type(value);
      inputs.push_back(RepeatedRows(InputPeriod(graph, i, each, data),
                                    type.columns * SizeBytes(type.dtype),
                                    program.RowsOf(value, rows)));
    }
  }
  expected_ = EvaluateProgram(graph, rows, world_size, of_ranks).value()[static_cast<size_t>(rank)];
  sent_ = of_ranks[static_cast<size_t>(rank)];
}

std::string ReferenceOperands::RunBy(
    const Program& program, uint64_t rows,
    const std::function<Status(const LaunchArguments&)>& run) const {
  std::vector<Bytes> inputs = sent_;
  std::vector<Bytes> outputs;
  std::vector<const void*> from;
  std::vector<void*> to;
  for (const Bytes& input : inputs) from.push_back(input.data());
  outputs.reserve(expected_.size());
  for (const ProgramOutput& output : program.graph().outputs()) {
    outputs.emplace_back(output.into < 0 ? program.BytesOf(output.value, rows) : 0,
                         std::byte{0xFF});
    to.push_back(output.into < 0 ? outputs.back().data()
                                 : inputs[static_cast<size_t>(output.into)].data());
  }
  LaunchArguments arguments;
  arguments.inputs = from;
  arguments.outputs = to;
  if (program.is_single_collective()) {
    arguments.send = from.front();
    arguments.recv = to.front();
  }
  if (Status ran = run(arguments); !ran) return ran.error().ToText();
  for (size_t i = 0; i < expected_.size(); ++i) {
    const int32_t into = program.graph().outputs()[i].into;
    const Bytes& seen = into < 0 ? outputs[i] : inputs[static_cast<size_t>(into)];
    const uint64_t wrong = CountWrong(expected_[i], seen);
    if (wrong > 0) return fmt::format("output {} has {} wrong elements", i, wrong);
  }
  return "";
}

}  // namespace cotune
