#include "tests/gpu/api_program.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include "fmt/format.h"

namespace cotune::gputest {
namespace {

// In the name of a choice of ResidualNorm that runs the sum and the norm inside of the collective.
constexpr std::string_view kBothOperations = "fuse=1.2";

// Makes the fastest such choice that was measured the winner of the database's only entry, by a
// program of its own: this one has the code of databases in libcotune already.
Status LetFusedWin(const std::string& path) {
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe");
  const std::string command =
      fmt::format("'{}' '{}' '{}'", (own.parent_path() / "win").string(), path, kBothOperations);
  if (std::system(command.c_str()) == 0) return {};
  return Fail(ErrorCode::kInternal, "the database of the tune has no such choice", path);
}

}  // namespace

ProgramText ResidualNorm(uint32_t columns) {
  return {"residual and norm", fmt::format("%x = input bf16 [R, {0}]\n"
                                           "%residual = input bf16 [R, {0}] replicated\n"
                                           "%gamma = input bf16 [1, {0}] replicated\n"
                                           "%sum = all_reduce sum %x\n"
                                           "%stream = add %sum, %residual\n"
                                           "%y = rms_norm %stream, %gamma, eps=1e-6\n"
                                           "return %y, %stream into %residual\n",
                                           columns)};
}

Result<std::unique_ptr<ApiProgram>> ApiProgram::Make(ApiRank& rank, const ProgramText& text,
                                                     uint64_t rows) {
  Result<ProgramGraph> graph = ProgramGraph::Parse(text.text);
  if (!graph) return Fail(graph.error().code, graph.error().ToText(), text.name);
  const int world_size = rank.size();
  rows = FittingRows(*graph, rows, world_size);
  const MemoryKind memory = rank.memory().is_cuda() ? MemoryKind::kCuda : MemoryKind::kHost;
  COTUNE_TRY(Program program, Program::Bind(std::move(*graph), {memory, world_size, world_size}));
  std::unique_ptr<ApiProgram> made(new ApiProgram(rank, text, std::move(program), rows));
  cotune_program* handle = nullptr;
  cotune_error error{};
  error.struct_size = sizeof(error);
  if (cotune_program_parse(text.text.data(), text.text.size(), &handle, &error) != COTUNE_SUCCESS) {
    return Fail(ErrorCode::kUsage, error.text, text.name);
  }
  made->handle_.reset(handle);
  const ProgramGraph& bound = made->program_.graph();
  const auto tensor = [&](ValueIndex value, const Operand& operand) {
    return cotune_tensor{sizeof(cotune_tensor),
                         static_cast<cotune_dtype>(bound.type(value).dtype),
                         operand.data,
                         2,
                         0,
                         operand.sizes.data()};
  };
  for (size_t i = 0; i < bound.inputs().size(); ++i) {
    COTUNE_TRY(Operand operand, made->Allocate(static_cast<ValueIndex>(i)));
    made->inputs_.push_back(std::move(operand));
    made->input_tensors_.push_back(tensor(static_cast<ValueIndex>(i), made->inputs_.back()));
  }
  for (const ProgramOutput& output : bound.outputs()) {
    COTUNE_TRY(Operand operand,
               output.into < 0 ? made->Allocate(output.value)
                               : Result<Operand>(made->inputs_[static_cast<size_t>(output.into)]));
    made->outputs_.push_back(std::move(operand));
    made->output_tensors_.push_back(tensor(output.value, made->outputs_.back()));
  }
  return made;
}

ApiProgram::ApiProgram(ApiRank& rank, ProgramText text, Program program, uint64_t rows)
    : rank_(rank), name_(std::move(text.name)), program_(std::move(program)), rows_(rows) {}

Result<ApiProgram::Operand> ApiProgram::Allocate(ValueIndex value) {
  Operand made;
  made.bytes = program_.BytesOf(value, rows_);
  made.sizes = {static_cast<int64_t>(program_.RowsOf(value, rows_)),
                program_.graph().type(value).columns};
  COTUNE_TRY(void* const data, rank_.memory().Allocate(made.bytes));
  made.data = data;
  return made;
}

Status ApiProgram::Fill(uint32_t salt) {
  COTUNE_TRY(ProgramValues values, ValuesOf(program_, rows_, rank_.rank(), salt));
  values_ = std::move(values);
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (Status s = rank_.memory().Write(inputs_[i].data, values_.inputs[i]); !s) return s;
  }
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (program_.graph().outputs()[i].into >= 0) continue;
    const std::vector<std::byte> poison(outputs_[i].bytes, std::byte{0xFF});
    if (Status s = rank_.memory().Write(outputs_[i].data, poison); !s) return s;
  }
  return {};
}

Status ApiProgram::Prepare(cotune_group* group) {
  return StatusOf(
      group,
      cotune_program_prepare(group, handle_.get(), input_tensors_.data(), input_tensors_.size(),
                             output_tensors_.data(), output_tensors_.size()),
      "prepare of " + name_);
}

Status ApiProgram::Tune(ApiRank& rank, const ApiPrograms& programs) {
  std::vector<uint64_t> rows(programs.size());
  std::vector<cotune_tune_node> nodes(programs.size());
  for (size_t i = 0; i < programs.size(); ++i) {
    rows[i] = programs[i]->rows();
    nodes[i] = {};
    nodes[i].struct_size = sizeof(nodes[i]);
    nodes[i].program = programs[i]->handle();
    nodes[i].sizes = &rows[i];
    nodes[i].size_count = 1;
  }
  cotune_tune_options options{};
  options.struct_size = sizeof(options);
  options.nodes = nodes.data();
  options.node_count = nodes.size();
  cotune_tune_report report{};
  report.struct_size = sizeof(report);
  if (Status s = StatusOf(rank.group(), cotune_tune(rank.group(), &options, &report), "tune"); !s) {
    return s;
  }
  if (report.is_tuned != 0) return {};
  return Fail(ErrorCode::kRankLost, "the tune was not committed");
}

Result<std::unique_ptr<ApiProgram>> ApiProgram::MakeFused(ApiRank& rank, uint32_t columns,
                                                          uint64_t rows) {
  const ProgramText text = ResidualNorm(columns);
  COTUNE_TRY(std::unique_ptr<ApiProgram> made, Make(rank, text, rows));
  ApiPrograms programs;
  programs.push_back(std::move(made));
  COTUNE_RETURN_IF_ERROR(Tune(rank, programs));
  // Other steps use the GPUs at the same time, or ranks share one, so that any choice may win.
  const std::string path = fmt::format("/tmp/cotune-fused-{}.tdb", rank.rank() == 0 ? getpid() : 0);
  if (rank.rank() == 0) std::filesystem::remove(path);
  COTUNE_RETURN_IF_ERROR(StatusOf(rank.group(), cotune_save(rank.group(), path.c_str()), "save"));
  if (rank.rank() == 0) COTUNE_RETURN_IF_ERROR(LetFusedWin(path));
  COTUNE_RETURN_IF_ERROR(StatusOf(rank.group(), cotune_load(rank.group(), path.c_str()), "load"));
  if (rank.rank() == 0) std::filesystem::remove(path);
  COTUNE_TRY(const std::string choice, programs.front()->Choice(rank.group()));
  if (choice.find(kBothOperations) != std::string::npos) return std::move(programs.front());
  return Fail(ErrorCode::kInternal, "no form with both operations runs, but " + choice, text.name);
}

Result<nlohmann::json> ApiProgram::Explain(cotune_group* group) const {
  std::string explained(256 << 10, '\0');
  size_t length = 0;
  COTUNE_RETURN_IF_ERROR(
      StatusOf(group,
               cotune_explain_program_json(group, handle_.get(), rows_, explained.data(),
                                           explained.size(), &length),
               "explain"));
  auto json = nlohmann::json::parse(explained.c_str(), nullptr, false);
  if (json.is_discarded()) return Fail(ErrorCode::kInternal, "explain is no JSON", name_);
  return json;
}

Result<std::string> ApiProgram::Choice(cotune_group* group) const {
  COTUNE_TRY(const nlohmann::json json, Explain(group));
  return json.value("choice", "");
}

Status ApiProgram::Enqueue(cotune_group* group) {
  return StatusOf(
      group,
      cotune_program_run(group, handle_.get(), input_tensors_.data(), input_tensors_.size(),
                         output_tensors_.data(), output_tensors_.size()),
      name_);
}

Status ApiProgram::Check(std::string_view what) {
  std::string wrong;
  for (size_t i = 0; i < outputs_.size() && wrong.empty(); ++i) {
    COTUNE_TRY(const auto seen, rank_.memory().Read(outputs_[i].data, outputs_[i].bytes));
    wrong = WhatIsWrong(values_.expected[i], seen);
    if (!wrong.empty()) wrong = fmt::format("output {}: {}", i + 1, wrong);
  }
  for (size_t i = 0; i < inputs_.size() && wrong.empty(); ++i) {
    if (OverwrittenBy(program_.graph(), i) >= 0) continue;
    COTUNE_TRY(const auto seen, rank_.memory().Read(inputs_[i].data, inputs_[i].bytes));
    if (seen != values_.inputs[i]) wrong = fmt::format("input {} has changed", i + 1);
  }
  rank_.Note(fmt::format("{} of {} rows, {}", name_, rows_, what), wrong);
  return {};
}

}  // namespace cotune::gputest
