#include "tests/gpu/program_buffers.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace cotune::gputest {
namespace {

constexpr uint64_t kGuardBytes = 256;
constexpr std::byte kGuard{0x5C};
constexpr std::byte kPoison{0xFF};

}  // namespace

Result<std::unique_ptr<ProgramBuffers>> ProgramBuffers::Allocate(Device& device,
                                                                 const Program& program,
                                                                 uint64_t rows, uint64_t offset) {
  std::unique_ptr<ProgramBuffers> made(new ProgramBuffers(device, program));
  const ProgramGraph& graph = program.graph();
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    COTUNE_TRY(void* const data,
               made->Add(made->inputs_of_call_, static_cast<ValueIndex>(i), rows, offset));
    made->inputs_.push_back(data);
  }
  for (const ProgramOutput& output : graph.outputs()) {
    if (output.into >= 0) {
      made->outputs_of_call_.emplace_back();
      // NOLINTNEXTLINE(cppcoreguidelines-pro-type-const-cast): it is memory of this object.
      made->outputs_.push_back(const_cast<void*>(made->inputs_[static_cast<size_t>(output.into)]));
      continue;
    }
    COTUNE_TRY(void* const data, made->Add(made->outputs_of_call_, output.value, rows, offset));
    made->outputs_.push_back(data);
  }
  return made;
}

Result<void*> ProgramBuffers::Add(std::vector<Operand>& to, ValueIndex value, uint64_t rows,
                                  uint64_t offset) {
  Operand& made = to.emplace_back();
  made.begin = kGuardBytes + offset * SizeBytes(program_.graph().type(value).dtype);
  made.bytes = program_.BytesOf(value, rows);
  COTUNE_TRY(auto buffer, device_.Allocate(made.begin + made.bytes + kGuardBytes));
  made.buffer = std::move(buffer);
  made.image.assign(made.buffer->bytes(), kGuard);
  return static_cast<std::byte*>(made.buffer->data()) + made.begin;
}

Status ProgramBuffers::Write(Operand& operand, std::span<const std::byte> content) {
  std::copy(content.begin(), content.end(),
            operand.image.begin() + static_cast<int64_t>(operand.begin));
  return device_.Write(*operand.buffer, operand.image);
}

Status ProgramBuffers::Fill(const ProgramValues& values) {
  for (size_t i = 0; i < inputs_of_call_.size(); ++i) {
    if (Status s = Write(inputs_of_call_[i], values.inputs[i]); !s) return s;
  }
  for (Operand& output : outputs_of_call_) {
    if (output.buffer == nullptr) continue;
    const std::vector<std::byte> poison(output.bytes, kPoison);
    if (Status s = Write(output, poison); !s) return s;
  }
  return {};
}

Result<std::vector<std::byte>> ProgramBuffers::Read(Operand& operand, std::string& wrong) {
  std::vector<std::byte> seen(operand.image.size());
  COTUNE_RETURN_IF_ERROR(device_.Read(*operand.buffer, seen));
  const auto begin = static_cast<int64_t>(operand.begin);
  const auto end = begin + static_cast<int64_t>(operand.bytes);
  const auto is_guard = [](std::byte each) { return each == kGuard; };
  if (!std::all_of(seen.begin(), seen.begin() + begin, is_guard)) wrong = "bytes in front of it";
  if (!std::all_of(seen.begin() + end, seen.end(), is_guard)) wrong = "bytes behind it";
  return std::vector<std::byte>(seen.begin() + begin, seen.begin() + end);
}

Result<std::vector<std::vector<std::byte>>> ProgramBuffers::Outputs() {
  std::vector<std::vector<std::byte>> outputs;
  std::string guard;
  for (size_t i = 0; i < outputs_of_call_.size(); ++i) {
    const int32_t into = program_.graph().outputs()[i].into;
    Operand& operand = into < 0 ? outputs_of_call_[i] : inputs_of_call_[static_cast<size_t>(into)];
    COTUNE_TRY(auto seen, Read(operand, guard));
    if (!guard.empty()) {
      return Fail(ErrorCode::kWrongResult, fmt::format("{} have changed", guard),
                  fmt::format("output {}", i + 1));
    }
    outputs.push_back(std::move(seen));
  }
  return outputs;
}

Result<std::string> ProgramBuffers::WhatIsWrong(const ProgramValues& values) {
  const ProgramGraph& graph = program_.graph();
  std::string guard;
  for (size_t i = 0; i < inputs_of_call_.size(); ++i) {
    COTUNE_TRY(const auto seen, Read(inputs_of_call_[i], guard));
    if (!guard.empty()) return fmt::format("input {}: {} have changed", i + 1, guard);
    const int output = OverwrittenBy(graph, i);
    if (output < 0 && seen != values.inputs[i]) return fmt::format("input {} has changed", i + 1);
    if (output < 0) continue;
    const std::string wrong =
        gputest::WhatIsWrong(values.expected[static_cast<size_t>(output)], seen);
    if (!wrong.empty()) return fmt::format("output {}: {}", output + 1, wrong);
  }
  for (size_t i = 0; i < outputs_of_call_.size(); ++i) {
    if (outputs_of_call_[i].buffer == nullptr) continue;
    COTUNE_TRY(const auto seen, Read(outputs_of_call_[i], guard));
    if (!guard.empty()) return fmt::format("output {}: {} have changed", i + 1, guard);
    const std::string wrong = gputest::WhatIsWrong(values.expected[i], seen);
    if (!wrong.empty()) return fmt::format("output {}: {}", i + 1, wrong);
  }
  return std::string();
}

}  // namespace cotune::gputest
