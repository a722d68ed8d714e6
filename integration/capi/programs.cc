#include "integration/capi/programs.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "integration/capi/group_state.h"
#include "integration/capi/read_options.h"

namespace cotune::capi {
namespace {

// "input 2 (residual)".
std::string InputText(const ProgramGraph& graph, size_t input) {
  const std::string& name = graph.inputs()[input].name;
  return name.empty() ? fmt::format("input {}", input + 1)
                      : fmt::format("input {} ({})", input + 1, name);
}

// The rows of a tensor with so many columns; nothing where its sizes do not fit.
std::optional<uint64_t> RowsOf(const cotune_tensor& tensor, uint64_t columns) {
  uint64_t elements = 1;
  for (uint32_t i = 0; i < tensor.size_count; ++i) {
    const int64_t size = tensor.sizes[i];
    if (size < 0) return std::nullopt;
    if (size > 0 && elements > static_cast<uint64_t>(INT64_MAX) / static_cast<uint64_t>(size)) {
      return std::nullopt;
    }
    elements *= static_cast<uint64_t>(size);
  }
  const bool ends_in_columns =
      tensor.size_count > 0 &&
      static_cast<uint64_t>(tensor.sizes[tensor.size_count - 1]) == columns;
  if (columns != 1 && !ends_in_columns) return std::nullopt;
  return elements / columns;
}

std::string SizesText(const cotune_tensor& tensor) {
  std::string text = "[";
  for (uint32_t i = 0; i < tensor.size_count; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", tensor.sizes[i]);
  }
  return text + "]";
}

// "f32"; a number that is no dtype stays one.
std::string DtypeText(cotune_dtype dtype) {
  for (const Dtype each : AllValueDtypes()) {
    if (static_cast<cotune_dtype>(each) == dtype) return std::string(Name(each));
  }
  return fmt::format("{}", dtype);
}

// The rows of a tensor that stands for a value of this type; name() is for errors.
template <typename NameOf>
Result<uint64_t> RowsOfTensor(const cotune_tensor& tensor, const ValueType& type,
                              const NameOf& name) {
  if (tensor.struct_size < sizeof(cotune_tensor)) {
    return Fail(ErrorCode::kUsage, fmt::format("struct_size is {}", tensor.struct_size), name(),
                "the tensor was not initialised", "set struct_size to sizeof(cotune_tensor)");
  }
  if (tensor.dtype != static_cast<cotune_dtype>(type.dtype)) {
    return Fail(ErrorCode::kUsage,
                fmt::format("the dtype is {}, and the program takes {} there",
                            DtypeText(tensor.dtype), Name(type.dtype)),
                name());
  }
  if (tensor.size_count > 0 && tensor.sizes == nullptr) {
    return Fail(ErrorCode::kUsage, "sizes is NULL", name());
  }
  const std::optional<uint64_t> rows = RowsOf(tensor, type.columns);
  if (!rows || (type.rows == Rows::kOne && *rows != 1)) {
    return Fail(
        ErrorCode::kUsage,
        fmt::format("sizes {} do not fit the program, which takes {} with {} there",
                    SizesText(tensor), type.rows == Rows::kOne ? "one row" : "rows",
                    type.columns == 1 ? "one column" : fmt::format("{} columns", type.columns)),
        name());
  }
  return *rows;
}

Status WrongCounts(const char* what, size_t given, size_t takes) {
  return Fail(
      ErrorCode::kUsage, fmt::format("{} {} are given, and the program has {}", given, what, takes),
      "", "",
      "give one for each input statement of the program's text, and one for each value that "
      "its return statement lists");
}

// Runs `body`, which gives a Status, without a group.
template <typename Body>
cotune_result WithError(cotune_error* error, const Body& body) noexcept {
  try {
    const Status status = body();
    if (status) return COTUNE_SUCCESS;
    WriteError(status.error(), error);
    return ResultOf(status.error().code);
  } catch (...) {
    WriteError(ErrorOfException("a call failed inside cotune"), error);
  }
  return COTUNE_ERROR_INTERNAL;
}

Status IsThere(const cotune_program* program) {
  if (program != nullptr) return {};
  return Fail(ErrorCode::kUsage, "the program is NULL", "", "", "see cotune_program_parse");
}

// The operands of one call, without memory of its own.
struct Operands {
  std::array<const void*, kProgramInputsMax> inputs{};
  std::array<void*, kProgramOutputsMax> outputs{};
};

Result<ProgramCall> CallOf(const cotune_group& group, const cotune_program* program,
                           const cotune_tensor* inputs, size_t input_count,
                           const cotune_tensor* outputs, size_t output_count, Operands& operands) {
  COTUNE_RETURN_IF_ERROR(IsThere(program));
  const int world_size = group.job().world_size();
  COTUNE_TRY(const uint64_t rows, RowsOfInputs(program->graph, world_size, inputs, input_count));
  COTUNE_RETURN_IF_ERROR(CheckOutputs(program->graph, world_size, rows, outputs, output_count));
  for (size_t i = 0; i < input_count; ++i) operands.inputs[i] = inputs[i].data;
  for (size_t i = 0; i < output_count; ++i) operands.outputs[i] = outputs[i].data;
  return ProgramCall{.graph = &program->graph,
                     .rows = rows,
                     .inputs = {operands.inputs.data(), input_count},
                     .outputs = {operands.outputs.data(), output_count},
                     .stream = group.stream,
                     .timeout_ns = group.call_timeout_ns};
}

uint64_t RowsIn(const ValueType& type, uint64_t rows, int world_size) {
  if (type.rows == Rows::kOne) return 1;
  return type.rows == Rows::kAll ? rows : rows / static_cast<uint64_t>(world_size);
}

}  // namespace

Result<uint64_t> RowsOfInputs(const ProgramGraph& graph, int world_size,
                              const cotune_tensor* inputs, size_t input_count) {
  if (input_count != graph.inputs().size() || inputs == nullptr) {
    return Propagate(
        WrongCounts("inputs", inputs == nullptr ? 0 : input_count, graph.inputs().size()));
  }
  std::optional<uint64_t> rows;
  for (size_t i = 0; i < input_count; ++i) {
    const ValueType& type = graph.type(static_cast<ValueIndex>(i));
    Result<uint64_t> own = RowsOfTensor(inputs[i], type, [&] { return InputText(graph, i); });
    if (!own) return own;
    if (type.rows == Rows::kOne) continue;
    const uint64_t shares = type.rows == Rows::kAll ? 1 : static_cast<uint64_t>(world_size);
    if (*own > UINT64_MAX / shares) {
      return Fail(ErrorCode::kUsage,
                  fmt::format("{} times its {} rows are more than can be counted", shares, *own),
                  InputText(graph, i));
    }
    const uint64_t whole = *own * shares;
    if (rows && *rows != whole) {
      return Fail(ErrorCode::kUsage,
                  fmt::format("its {} rows stand for R = {}, and those in front of it for {}", *own,
                              whole, *rows),
                  InputText(graph, i));
    }
    rows = whole;
  }
  if (rows || !graph.has_rows()) return rows.value_or(1);
  return Fail(ErrorCode::kUsage, "no input says how many rows there are", graph.name(),
              "all inputs have one row, and values of the program have R", "");
}

Status CheckOutputs(const ProgramGraph& graph, int world_size, uint64_t rows,
                    const cotune_tensor* outputs, size_t output_count) {
  if (output_count != graph.outputs().size() || outputs == nullptr) {
    return WrongCounts("outputs", outputs == nullptr ? 0 : output_count, graph.outputs().size());
  }
  for (size_t i = 0; i < output_count; ++i) {
    const ValueType& type = graph.type(graph.outputs()[i].value);
    COTUNE_TRY(const uint64_t own,
               RowsOfTensor(outputs[i], type, [&] { return fmt::format("output {}", i + 1); }));
    const uint64_t right = RowsIn(type, rows, world_size);
    if (own == right) continue;
    return Fail(ErrorCode::kUsage, fmt::format("it has {} rows, and {} come out", own, right),
                fmt::format("output {}", i + 1));
  }
  return {};
}

namespace {

Status Parse(const char* text, size_t length, cotune_program** program) {
  if (program == nullptr) return Fail(ErrorCode::kUsage, "program is NULL", "cotune_program_parse");
  *program = nullptr;
  if (text == nullptr) return Fail(ErrorCode::kUsage, "the text is NULL", "cotune_program_parse");
  COTUNE_TRY(ProgramGraph graph, ProgramGraph::Parse({text, length}));
  *program = new cotune_program{std::move(graph)};
  return {};
}

Status Infer(const cotune_program* program, int32_t world_size, const cotune_tensor* inputs,
             size_t input_count, cotune_program_value* outputs, size_t output_count) {
  if (Status there = IsThere(program); !there) return there;
  if (world_size < 1) {
    return Fail(ErrorCode::kUsage, fmt::format("world_size is {}", world_size),
                "cotune_program_infer");
  }
  const ProgramGraph& graph = program->graph;
  COTUNE_TRY(const uint64_t rows, RowsOfInputs(graph, world_size, inputs, input_count));
  if (graph.needs_whole_shares() && rows % static_cast<uint64_t>(world_size) != 0) {
    return Fail(ErrorCode::kUsage, fmt::format("{} rows have no {} equal shares", rows, world_size),
                graph.name());
  }
  if (output_count != graph.outputs().size() || outputs == nullptr) {
    return WrongCounts("outputs", outputs == nullptr ? 0 : output_count, graph.outputs().size());
  }
  for (size_t i = 0; i < output_count; ++i) {
    if (outputs[i].struct_size == 0) {
      return Fail(ErrorCode::kUsage, fmt::format("struct_size of output {} is 0", i + 1),
                  "cotune_program_infer", "", "set it to sizeof(cotune_program_value)");
    }
    const ProgramOutput& output = graph.outputs()[i];
    const ValueType& type = graph.type(output.value);
    const cotune_program_value value{outputs[i].struct_size,
                                     static_cast<cotune_dtype>(type.dtype),
                                     RowsIn(type, rows, world_size),
                                     type.columns,
                                     output.into,
                                     graph.is_replicated(output.value) ? 1 : 0};
    std::memcpy(&outputs[i], &value, std::min<size_t>(value.struct_size, sizeof(value)));
  }
  return {};
}

}  // namespace
}  // namespace cotune::capi

extern "C" {

cotune_result cotune_program_parse(const char* text, size_t length, cotune_program** program,
                                   cotune_error* error) {
  return cotune::capi::WithError(error, [&] { return cotune::capi::Parse(text, length, program); });
}

void cotune_program_free(cotune_program* program) { delete program; }

uint64_t cotune_program_digest(const cotune_program* program) {
  return program == nullptr ? 0 : program->graph.digest();
}

size_t cotune_program_input_count(const cotune_program* program) {
  return program == nullptr ? 0 : program->graph.inputs().size();
}

size_t cotune_program_output_count(const cotune_program* program) {
  return program == nullptr ? 0 : program->graph.outputs().size();
}

cotune_result cotune_program_infer(const cotune_program* program, int32_t world_size,
                                   const cotune_tensor* inputs, size_t input_count,
                                   cotune_program_value* outputs, size_t output_count,
                                   cotune_error* error) {
  return cotune::capi::WithError(error, [&] {
    return cotune::capi::Infer(program, world_size, inputs, input_count, outputs, output_count);
  });
}

cotune_result cotune_program_run(cotune_group* group, const cotune_program* program,
                                 const cotune_tensor* inputs, size_t input_count,
                                 const cotune_tensor* outputs, size_t output_count) {
  using namespace cotune;  // NOLINT(google-build-using-namespace): for one function
  return capi::Guard(group, [&](cotune_group& self) -> Status {
    capi::Operands operands;
    COTUNE_TRY(const ProgramCall call,
               capi::CallOf(self, program, inputs, input_count, outputs, output_count, operands));
    if (!self.has_said_table) capi::SayTable(self);
    return self.dispatcher->Run(call);
  });
}

cotune_result cotune_program_run_agreed(cotune_group* group, const cotune_program* program,
                                        const cotune_tensor* inputs, size_t input_count,
                                        const cotune_tensor* outputs, size_t output_count,
                                        int32_t* has_run) {
  using namespace cotune;  // NOLINT(google-build-using-namespace): for one function
  if (has_run != nullptr) *has_run = 0;
  return capi::Guard(group, [&](cotune_group& self) -> Status {
    if (has_run == nullptr) return Fail(ErrorCode::kUsage, "has_run is NULL", "a program");
    capi::Operands operands;
    COTUNE_TRY(const ProgramCall call,
               capi::CallOf(self, program, inputs, input_count, outputs, output_count, operands));
    COTUNE_TRY(const bool is_agreed, self.dispatcher->IsAgreed(*call.graph, call.rows));
    if (!is_agreed) return {};
    *has_run = 1;
    if (!self.has_said_table) capi::SayTable(self);
    return self.dispatcher->Run(call);
  });
}

cotune_result cotune_program_agree(cotune_group* group, const cotune_program* program,
                                   const uint64_t* rows, size_t row_count) {
  using namespace cotune;  // NOLINT(google-build-using-namespace): for one function
  return capi::Guard(group, [&](cotune_group& self) -> Status {
    COTUNE_RETURN_IF_ERROR(capi::IsThere(program));
    if (rows == nullptr && row_count > 0) {
      return Fail(ErrorCode::kUsage, "rows is NULL", "cotune_program_agree");
    }
    return self.dispatcher->Agree(program->graph, {rows, row_count});
  });
}

int32_t cotune_program_is_agreed(cotune_group* group, const cotune_program* program,
                                 uint64_t rows) {
  using namespace cotune;  // NOLINT(google-build-using-namespace): for one function
  int32_t answer = 0;
  capi::Guard(group, [&](cotune_group& self) -> Status {
    COTUNE_RETURN_IF_ERROR(capi::IsThere(program));
    COTUNE_TRY(const bool is_agreed, self.dispatcher->IsAgreed(program->graph, rows));
    answer = is_agreed ? 1 : 0;
    return {};
  });
  return answer;
}

cotune_result cotune_program_prepare(cotune_group* group, const cotune_program* program,
                                     const cotune_tensor* inputs, size_t input_count,
                                     const cotune_tensor* outputs, size_t output_count) {
  using namespace cotune;  // NOLINT(google-build-using-namespace): for one function
  return capi::Guard(group, [&](cotune_group& self) -> Status {
    capi::Operands operands;
    COTUNE_TRY(const ProgramCall call,
               capi::CallOf(self, program, inputs, input_count, outputs, output_count, operands));
    return self.dispatcher->Prepare(call);
  });
}

}  // extern "C"
