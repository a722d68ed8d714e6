#include "tests/multi_process/testing/checked_program.h"

#include <algorithm>

#include "core/problem/program_data.h"
#include "fmt/format.h"

namespace cotune {

CheckedProgram::CheckedProgram(const std::string& text, uint64_t rows, int rank, int world_size,
                               uint32_t salt)
    : graph_(ProgramGraph::Parse(text).value()),
      program_(Program::Bind(graph_, {MemoryKind::kHost, world_size, world_size}).value()),
      rows_(rows) {
  cotune_error error{};
  error.struct_size = sizeof(error);
  if (cotune_program_parse(text.data(), text.size(), &handle_, &error) != COTUNE_SUCCESS) return;
  const ProgramDataSet data{.rows = rows, .world_size = world_size, .salt = salt};
  std::vector<std::vector<std::vector<std::byte>>> of_ranks;
  for (int each = 0; each < world_size; ++each) {
    auto& inputs = of_ranks.emplace_back();
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const auto value = static_cast<ValueIndex>(i);
      inputs.push_back(RepeatedRows(InputPeriod(graph_, i, each, data), RowBytes(value),
                                    program_.RowsOf(value, rows)));
    }
  }
  expected_ =
      EvaluateProgram(graph_, rows, world_size, of_ranks).value()[static_cast<size_t>(rank)];
  inputs_ = of_ranks[static_cast<size_t>(rank)];
  sent_ = inputs_;
  for (const ProgramOutput& output : graph_.outputs()) {
    outputs_.emplace_back(output.into < 0 ? program_.BytesOf(output.value, rows) : 0,
                          std::byte{0xFF});
  }
}

CheckedProgram::~CheckedProgram() { cotune_program_free(handle_); }

CheckedProgram::Outcome CheckedProgram::Call(cotune_group* group) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    std::copy(sent_[i].begin(), sent_[i].end(), inputs_[i].begin());
  }
  // Values of the call before must not pass for those of this one.
  for (std::vector<std::byte>& output : outputs_) {
    std::fill(output.begin(), output.end(), std::byte{0xFF});
  }
  std::vector<cotune_tensor> inputs;
  std::vector<cotune_tensor> outputs;
  sizes_.clear();
  sizes_.reserve(2 * (inputs_.size() + outputs_.size()));
  for (size_t i = 0; i < inputs_.size(); ++i) {
    inputs.push_back(Tensor(static_cast<ValueIndex>(i), inputs_[i].data()));
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    outputs.push_back(Tensor(graph_.outputs()[i].value, BytesOfOutput(i).data()));
  }
  Outcome outcome;
  outcome.result = cotune_program_run(group, handle_, inputs.data(), inputs.size(), outputs.data(),
                                      outputs.size());
  if (outcome.result != COTUNE_SUCCESS) outcome.error = cotune_last_error(group);
  outcome.wrong = WhatIsWrong(outcome.result == COTUNE_SUCCESS);
  return outcome;
}

std::string CheckedProgram::Run(cotune_group* group) {
  const Outcome outcome = Call(group);
  return outcome.wrong.empty() ? outcome.error : outcome.wrong + " " + outcome.error;
}

std::string CheckedProgram::WhatIsWrong(bool has_succeeded) {
  for (size_t i = 0; has_succeeded && i < outputs_.size(); ++i) {
    const uint64_t wrong = CountWrong(expected_[i], BytesOfOutput(i));
    if (wrong > 0) return fmt::format("output {} has {} wrong elements", i, wrong);
  }
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (!IsOverwritten(i) && inputs_[i] != sent_[i]) return fmt::format("input {} changed", i);
  }
  return "";
}

uint64_t CheckedProgram::RowBytes(ValueIndex value) const {
  return graph_.type(value).columns * SizeBytes(graph_.type(value).dtype);
}

bool CheckedProgram::IsOverwritten(size_t input) const {
  return std::any_of(
      graph_.outputs().begin(), graph_.outputs().end(),
      [&](const ProgramOutput& output) { return output.into == static_cast<int32_t>(input); });
}

std::vector<std::byte>& CheckedProgram::BytesOfOutput(size_t output) {
  const int32_t into = graph_.outputs()[output].into;
  return into < 0 ? outputs_[output] : inputs_[static_cast<size_t>(into)];
}

cotune_tensor CheckedProgram::Tensor(ValueIndex value, void* data) {
  const ValueType& type = graph_.type(value);
  sizes_.push_back(static_cast<int64_t>(program_.RowsOf(value, rows_)));
  sizes_.push_back(type.columns);
  return {sizeof(cotune_tensor),     static_cast<cotune_dtype>(type.dtype), data, 2, 0,
          &sizes_[sizes_.size() - 2]};
}

}  // namespace cotune
