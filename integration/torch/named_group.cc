#include "integration/torch/named_group.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <utility>

#include "fmt/format.h"
#include "integration/torch/cuda_stream.h"
#include "integration/torch/operator_error.h"

namespace cotune::torch_operators {
namespace {

// Programs and manifests that are kept; a process that compiles more of them parses some again.
constexpr size_t kKeptMax = 4096;
// The manifest of a call that Python makes for a program whose call is not admitted.
constexpr std::string_view kAgreedWord = "agreed";
// A tune that missed the window of its pre-sync is repeated: all ranks know of the miss.
constexpr int kTuneTries = 3;

cotune_torch_tune EventOf(cotune_torch_tune_phase phase, const std::string& name,
                          const std::string& manifest, cotune_group* group) {
  cotune_torch_tune event{};
  event.struct_size = sizeof(event);
  event.phase = phase;
  event.group_name = name.c_str();
  event.manifest = manifest.c_str();
  event.group = group;
  event.error = "";
  event.what = "";
  event.report.struct_size = sizeof(event.report);
  return event;
}

// The cells of a tune, on their way to the listener.
struct CellTold {
  cotune_torch_tune event;
  const Listen& listen;

  static int32_t Tell(void* context, int32_t cell, int32_t cells, const char* what) {
    auto& self = *static_cast<CellTold*>(context);
    self.event.cell = cell;
    self.event.cells = cells;
    self.event.what = what;
    return self.listen(self.event);
  }
};

// Whether calls go on by the table that there was. The ranks have all had the same error.
bool LeavesTheTable(cotune_result result) {
  return result == COTUNE_ERROR_USAGE || result == COTUNE_ERROR_ENVIRONMENT ||
         result == COTUNE_ERROR_DATABASE || result == COTUNE_ERROR_UNSUPPORTED ||
         result == COTUNE_ERROR_INTERRUPTED;
}

// The last input of a program is left out if the program does not declare it.
size_t InputsOf(const ProgramRun& run, const cotune_program* program) {
  const size_t inputs = run.inputs.size();
  return inputs == cotune_program_input_count(program) + 1 ? inputs - 1 : inputs;
}

uint64_t ElementsOf(const cotune_tensor& tensor) {
  uint64_t elements = 1;
  for (uint32_t i = 0; i < tensor.size_count; ++i) {
    elements *= static_cast<uint64_t>(tensor.sizes[i]);
  }
  return elements;
}

}  // namespace

size_t NamedGroup::TextHash::operator()(std::string_view text) const {
  return XXH3_64bits(text.data(), text.size());
}

NamedGroup::NamedGroup(std::string name, int32_t device, cotune_group* group, TuneWishes wishes)
    : name_(std::move(name)),
      device_(device),
      wishes_(std::move(wishes)),
      group_(group),
      is_plain_(group == nullptr) {}

NamedGroup::Program NamedGroup::Parse(std::string_view text) {
  cotune_program* program = nullptr;
  cotune_error error{};
  error.struct_size = sizeof(error);
  if (cotune_program_parse(text.data(), text.size(), &program, &error) != COTUNE_SUCCESS) {
    throw OperatorError(fmt::format("cotune: {}", error.text));
  }
  return Program(program);
}

NamedGroup::KnownProgram& NamedGroup::Known(std::string_view text) {
  const auto known = programs_.find(text);
  if (known != programs_.end()) return known->second;
  Program program = Parse(text);
  if (programs_.size() >= kKeptMax) programs_.clear();
  return programs_.emplace(text, KnownProgram{std::move(program), {}}).first->second;
}

const AdmittedCalls* NamedGroup::Admitted(const KnownProgram& known, const ProgramRun& run) const {
  uint64_t elements = 0;
  for (const cotune_tensor& each : run.inputs.first(InputsOf(run, known.program.get()))) {
    elements += ElementsOf(each);
  }
  const AdmittedCalls* calls = known.admitted.Find(elements);
  if (calls == nullptr || !counters_.HasRoom(calls->counters, calls->limit)) return nullptr;
  return calls;
}

void NamedGroup::Admit(std::string_view program, AdmittedCalls calls) {
  const std::lock_guard lock(mutex_);
  if (is_closed_ || is_plain_) return;
  Known(program).admitted.Admit(std::move(calls));
}

uint64_t NamedGroup::Count(uint32_t counter, uint64_t calls) {
  const std::lock_guard lock(mutex_);
  return counters_.Add(counter, calls);
}

void NamedGroup::Raise(std::string_view what) {
  throw OperatorError(
      fmt::format("cotune: {} of group \"{}\": {}", what, name_, cotune_last_error(group_)));
}

void NamedGroup::CheckOpen() const {
  if (is_closed_) throw OperatorError(fmt::format("cotune: group \"{}\" is closed", name_));
}

void NamedGroup::FollowStream() {
  if (device_ < 0) return;
  stream_ = CurrentCudaStream(device_);
  if (cotune_group_set_stream(group_, stream_) != COTUNE_SUCCESS) Raise("a call");
}

cotune_result NamedGroup::TuneNodes(const std::vector<ManifestNode>& manifest,
                                    cotune_torch_tune& event, const Listen& listen) {
  std::vector<Program> programs;
  std::vector<cotune_tune_node> nodes;
  for (const ManifestNode& each : manifest) {
    programs.push_back(Parse(each.program));
    cotune_tune_node node{};
    node.struct_size = sizeof(node);
    node.program = programs.back().get();
    node.sizes = each.rows.data();
    node.size_count = each.rows.size();
    nodes.push_back(node);
  }
  cotune_tune_options options{};
  options.struct_size = sizeof(options);
  options.nodes = nodes.data();
  options.node_count = nodes.size();
  options.budget_ns = has_tuned_ ? wishes_.later_budget_ns : wishes_.budget_ns;
  has_tuned_ = true;
  options.numerics = wishes_.numerics;
  // Each rank compiles its graphs by itself, and they may differ around a collective.
  options.only_agreeable = 1;
  options.database_path = wishes_.has_database ? wishes_.database_path.c_str() : nullptr;
  CellTold told{event, listen};
  told.event.phase = COTUNE_TORCH_TUNE_MEASURES;
  options.progress = CellTold::Tell;
  options.progress_context = &told;
  cotune_result result = COTUNE_SUCCESS;
  for (int tries = 0; tries < kTuneTries; ++tries) {
    result = cotune_tune(group_, &options, &event.report);
    if (result != COTUNE_SUCCESS || event.report.is_tuned != 0) break;
  }
  return result;
}

void NamedGroup::Tune(std::string_view manifest, const Listen& listen) {
  const std::string text(manifest);
  cotune_torch_tune event = EventOf(COTUNE_TORCH_TUNE_HAS_ENDED, name_, text, group_);
  if (device_ >= 0 && IsCapturing(stream_)) {
    event.result = COTUNE_ERROR_UNSUPPORTED;
    event.error = "a CUDA graph is being captured, in which nothing can be measured";
    listen(event);
    return;
  }
  const auto nodes = ParseManifest(manifest);
  if (!nodes) throw OperatorError("cotune: " + nodes.error());
  tuned_manifests_.insert(text);
  listen(EventOf(COTUNE_TORCH_TUNE_BEGINS, name_, text, group_));
  event.result = TuneNodes(*nodes, event, listen);
  std::string error;
  if (event.result != COTUNE_SUCCESS) error = cotune_last_error(group_);
  event.error = error.c_str();
  if (event.result == COTUNE_ERROR_DISAGREEMENT) is_plain_ = true;
  // The file is the same for the next manifest, and the listener has been told.
  if (event.result == COTUNE_ERROR_DATABASE) wishes_.is_untuned = true;
  listen(event);
  if (event.result != COTUNE_SUCCESS && !is_plain_ && !LeavesTheTable(event.result)) {
    throw OperatorError(fmt::format("cotune: a tune of group \"{}\": {}", name_, error));
  }
}

RunOutcome NamedGroup::Run(const ProgramRun& run, const Listen& listen) {
  if (is_plain_) return RunOutcome::kPlain;
  const std::lock_guard lock(mutex_);
  CheckOpen();
  FollowStream();
  const bool is_new =
      !run.manifest.empty() && !wishes_.is_untuned && !tuned_manifests_.contains(run.manifest);
  if (is_new) Tune(run.manifest, listen);
  if (is_plain_) return RunOutcome::kPlain;
  const cotune_program* program = Parsed(run.program);
  const size_t inputs = InputsOf(run, program);
  const cotune_result result = cotune_program_run(group_, program, run.inputs.data(), inputs,
                                                  run.outputs.data(), run.outputs.size());
  if (result != COTUNE_SUCCESS) Raise("a program");
  return RunOutcome::kDone;
}

RunOutcome NamedGroup::RunAgreed(const ProgramRun& run) {
  if (is_plain_) return RunOutcome::kPlain;
  const std::lock_guard lock(mutex_);
  CheckOpen();
  FollowStream();
  const KnownProgram& known = Known(run.program);
  const AdmittedCalls* calls = nullptr;
  if (run.manifest != kAgreedWord) {
    if (!run.manifest.empty() && run.manifest != latest_manifest_) latest_manifest_ = run.manifest;
    calls = Admitted(known, run);
    if (calls == nullptr) return RunOutcome::kUndecided;
  }
  const cotune_program* program = known.program.get();
  int32_t has_run = 0;
  const cotune_result result =
      cotune_program_run_agreed(group_, program, run.inputs.data(), InputsOf(run, program),
                                run.outputs.data(), run.outputs.size(), &has_run);
  if (result != COTUNE_SUCCESS) Raise("a program");
  if (has_run == 0) return RunOutcome::kUndecided;
  if (calls != nullptr) {
    for (const uint32_t counter : calls->counters) counters_.Add(counter, 1);
  }
  return RunOutcome::kDone;
}

std::string NamedGroup::latest_manifest() {
  const std::lock_guard lock(mutex_);
  return latest_manifest_;
}

void NamedGroup::Agree(const cotune_program* program, std::span<const uint64_t> rows) {
  if (cotune_program_agree(group_, program, rows.data(), rows.size()) != COTUNE_SUCCESS) {
    Raise("an agreement");
  }
}

void NamedGroup::Decide(std::string_view manifest, std::string_view program, uint64_t rows,
                        const Listen& listen) {
  const std::lock_guard lock(mutex_);
  CheckOpen();
  if (is_plain_) throw OperatorError(fmt::format("cotune: group \"{}\" is plain", name_));
  FollowStream();
  for (auto& [text, known] : programs_) known.admitted.DropCounted();
  if (!manifest.empty()) {
    if (!wishes_.is_untuned) Tune(manifest, listen);
    if (is_plain_) return;
    const auto nodes = ParseManifest(manifest);
    if (!nodes) throw OperatorError("cotune: " + nodes.error());
    for (const ManifestNode& node : *nodes) {
      const std::span<const uint64_t> each =
          node.has_any_rows ? std::span<const uint64_t>() : node.rows;
      Agree(Parsed(node.program), each);
    }
  }
  Agree(Parsed(program), {&rows, 1});
}

bool NamedGroup::IsAgreed(std::string_view program, uint64_t rows) {
  const std::lock_guard lock(mutex_);
  if (is_closed_ || is_plain_) return false;
  return cotune_program_is_agreed(group_, Parsed(program), rows) != 0;
}

bool NamedGroup::Run(const std::function<cotune_result(cotune_group*)>& call) {
  if (is_plain_) return false;
  const std::lock_guard lock(mutex_);
  CheckOpen();
  FollowStream();
  if (call(group_) != COTUNE_SUCCESS) Raise("a collective");
  return true;
}

void NamedGroup::Close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  is_plain_ = false;
}

}  // namespace cotune::torch_operators
