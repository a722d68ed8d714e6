// Calls of programs.
#include <algorithm>
#include <optional>
#include <utility>

#include "core/choice/choice_lists.h"
#include "core/events/stage_observer.h"
#include "fmt/format.h"
#include "integration/dispatcher.h"
#include "integration/dispatcher_plan.h"

namespace cotune {
namespace {

// Programs that are kept bound to the group. Binding one again takes microseconds.
constexpr size_t kProgramsMax = 256;

std::string NameOf(const Program& program) {
  const std::string& name = program.graph().name();
  return name.empty() ? fmt::format("program {:016x}", program.graph().digest())
                      : fmt::format("program {}", name);
}

// The bytes of an operand.
struct Operand {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool Overlaps(const Operand& other) const { return begin < other.end && other.begin < end; }
};

Operand OperandAt(const void* data, uint64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  return {begin, begin + bytes};
}

// Steps refuse operands, too, but when others have run, here and on other ranks.
Status CheckAddresses(const Program& program, const ProgramCall& call) {
  const ProgramGraph& graph = program.graph();
  const auto wrong = [&](std::string what, std::string next_step) {
    return Fail(ErrorCode::kUsage, std::move(what), NameOf(program), "", std::move(next_step));
  };
  const auto at = [&](ValueIndex value, const void* data) {
    return OperandAt(data, program.BytesOf(value, call.rows));
  };
  const auto is_aligned = [&](ValueIndex value, const Operand& operand) {
    return operand.begin % SizeBytes(graph.type(value).dtype) == 0;
  };
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const auto value = static_cast<ValueIndex>(i);
    if (is_aligned(value, at(value, call.inputs[i]))) continue;
    return wrong(fmt::format("the address of input {} is no multiple of its {} bytes an element",
                             i + 1, SizeBytes(graph.type(value).dtype)),
                 "give it the address of an element");
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const ProgramOutput& output = graph.outputs()[i];
    const Operand own = at(output.value, call.outputs[i]);
    if (!is_aligned(output.value, own)) {
      return wrong(fmt::format("the address of output {} is no multiple of its {} bytes an element",
                               i + 1, SizeBytes(graph.type(output.value).dtype)),
                   "give it the address of an element");
    }
    for (size_t other = 0; other < i; ++other) {
      if (!own.Overlaps(at(graph.outputs()[other].value, call.outputs[other]))) continue;
      return wrong(fmt::format("outputs {} and {} overlap", other + 1, i + 1),
                   "give each output memory of its own");
    }
    for (size_t input = 0; input < call.inputs.size(); ++input) {
      const auto value = static_cast<ValueIndex>(input);
      if (output.into == value || !own.Overlaps(at(value, call.inputs[input]))) continue;
      return wrong(fmt::format("output {} overlaps input {}", i + 1, input + 1),
                   "give the output memory of its own, or let the program say `into`");
    }
  }
  return {};
}

// A step that is refused in the middle of a call: peers may have begun it, so that the ranks would
// be out of step if the group went on.
Status EndedInTheMiddle(Status status) {
  if (status) return status;
  Error& error = status.error();
  if (error.code != ErrorCode::kUsage && error.code != ErrorCode::kUnsupported) return status;
  error.code = ErrorCode::kEnvironment;
  error.what = "a step of the program cannot run: " + error.what;
  return status;
}

}  // namespace

Result<const Program*> Dispatcher::Bound(const ProgramGraph& graph, BufferClass buffers) {
  const std::pair key(graph.digest(), buffers);
  const auto known = programs_.find(key);
  if (known != programs_.end()) return known->second.get();
  COTUNE_TRY(Program program,
             Program::Bind(graph, {job_.device().kind(), world_size_, ranks_per_node_, buffers}));
  if (programs_.size() >= kProgramsMax) {
    // Whoever asks may hold the same graph bound to the other kind of memory.
    std::erase_if(programs_, [&](const auto& each) { return each.first.first != graph.digest(); });
  }
  auto owned = std::make_unique<Program>(std::move(program));
  return programs_.emplace(key, std::move(owned)).first->second.get();
}

bool Dispatcher::IsSymmetric(const Program& program, const ProgramCall& call,
                             std::string_view backend) const {
  const BackendGroups& groups = job_.groups();
  const auto is_registered = [&](ValueIndex value, const void* data) {
    return groups.IsRegistered(data, program.BytesOf(value, call.rows), backend);
  };
  // As in a call of the collective alone: only the root of a broadcast has something to send.
  const bool only_receives =
      program.is_single_collective() && program.anchor().collective == Collective::kBroadcast;
  for (size_t i = 0; !only_receives && i < call.inputs.size(); ++i) {
    if (!is_registered(static_cast<ValueIndex>(i), call.inputs[i])) return false;
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const ProgramOutput& output = program.graph().outputs()[i];
    if (!is_registered(output.value, call.outputs[i])) return false;
  }
  return !call.inputs.empty();
}

Result<Dispatcher::ProgramKey> Dispatcher::KeyOf(const ProgramCall& call,
                                                 const DispatchTable& table) {
  const auto key_on = [&](BufferClass buffers) -> Result<ProgramKey> {
    COTUNE_TRY(const Program* program, Bound(*call.graph, buffers));
    COTUNE_TRY(const Problem problem, ProblemOf(*program, call.rows));
    const int32_t choice = table.Lookup(DispatchKey::Of(problem.cls), problem.bytes());
    return ProgramKey{program, {PlanKey{problem, choice, &table}}};
  };
  Result<ProgramKey> plain = key_on(BufferClass::kPlain);
  if (!plain) return plain;
  if (!job_.settings().force.empty()) {
    COTUNE_TRY(const ForcedCall* forced, Forced(plain->call.key, plain->program, call.stream));
    plain->call.forced = forced;
    if (forced->key) return ProgramKey{plain->program, {*forced->key, forced}};
  }
  COTUNE_TRY(const std::optional<PlanKey> agreed,
             Followed(plain->call.key, plain->program, call.stream));
  // Also if it is the plain key itself: another rank runs another program around the collectives,
  // whose operands need not be registered.
  if (agreed) return ProgramKey{plain->program, {*agreed, plain->call.forced}};
  // Without rows the operands say nothing, and every rank has to come to the same answer.
  const bool may_be_symmetric = job_.groups().HasRegisteredMemory() && call.rows > 0;
  if (!may_be_symmetric || !IsSymmetric(*plain->program, call)) return plain;
  Result<ProgramKey> symmetric = key_on(BufferClass::kSymmetric);
  if (!symmetric || symmetric->call.key.choice_index == DispatchTable::kNoChoice) return plain;
  symmetric->call.forced = plain->call.forced;
  const ChoiceId& id = table.choices()[static_cast<size_t>(symmetric->call.key.choice_index)];
  for (const ChoiceId& step : id.steps()) {
    if (!IsSymmetric(*plain->program, call, step.backend())) return plain;
  }
  return symmetric;
}

Result<Problem> Dispatcher::ProblemOf(const Program& program, uint64_t rows) const {
  const ProgramGraph& graph = program.graph();
  const auto wrong = [&](std::string cause, std::string next_step) {
    return Fail(ErrorCode::kUsage, fmt::format("{} rows do not fit the program", rows),
                NameOf(program), std::move(cause), std::move(next_step));
  };
  if (!graph.has_rows() && rows != 1) {
    return wrong("none of its values has R rows", "call it with 1");
  }
  if (graph.needs_whole_shares() && rows % static_cast<uint64_t>(world_size_) != 0) {
    return wrong(fmt::format("{} ranks have no equal shares of them", world_size_),
                 "call it with a multiple of the number of ranks");
  }
  const Problem problem = program.ProblemAtRows(rows, job_.topology_digest());
  if (program.RowsAt(problem) != rows) return wrong("no memory can hold its values", "");
  return problem;
}

Status Dispatcher::CheckOperands(const Program& program, const ProgramCall& call) const {
  const ProgramGraph& graph = program.graph();
  const auto wrong = [&](std::string what) {
    return Fail(ErrorCode::kUsage, std::move(what), NameOf(program));
  };
  if (call.inputs.size() != graph.inputs().size() ||
      call.outputs.size() != graph.outputs().size()) {
    return wrong(fmt::format("{} inputs and {} outputs are given, and the program has {} and {}",
                             call.inputs.size(), call.outputs.size(), graph.inputs().size(),
                             graph.outputs().size()));
  }
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const bool is_empty = program.BytesOf(static_cast<ValueIndex>(i), call.rows) == 0;
    if (call.inputs[i] == nullptr && !is_empty)
      return wrong(fmt::format("input {} is NULL", i + 1));
  }
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const ProgramOutput& output = graph.outputs()[i];
    if (call.outputs[i] == nullptr && program.BytesOf(output.value, call.rows) > 0) {
      return wrong(fmt::format("output {} is NULL", i + 1));
    }
    if (output.into < 0) continue;
    if (call.outputs[i] != call.inputs[static_cast<size_t>(output.into)]) {
      return wrong(fmt::format("output {} overwrites input {}, and has another address", i + 1,
                               output.into + 1));
    }
  }
  return {};
}

Call Dispatcher::AsCall(const Program& program, const Problem& problem, const ProgramCall& call) {
  const ProblemClass& cls = program.anchor();
  return {.collective = cls.collective,
          .dtype = cls.dtype,
          .reduction = cls.reduction,
          .root = cls.root,
          .count = problem.count,
          .send = call.inputs.empty() ? nullptr : call.inputs[0],
          .recv = call.outputs.empty() ? nullptr : call.outputs[0],
          .stream = call.stream,
          .timeout_ns = call.timeout_ns};
}

Result<Dispatcher::CachedPlan*> Dispatcher::PlanOf(const ProgramCall& call) {
  const DispatchTable* table = table_.load(std::memory_order_acquire);
  COTUNE_TRY(const Program* program, Bound(*call.graph));
  COTUNE_RETURN_IF_ERROR(CheckOperands(*program, call));
  COTUNE_RETURN_IF_ERROR(CheckAddresses(*program, call));
  const bool is_latest = latest_program_.plan != nullptr && latest_program_.table == table &&
                         !job_.groups().HasRegisteredMemory() &&
                         latest_program_.digest == call.graph->digest() &&
                         latest_program_.rows == call.rows;
  if (is_latest) return latest_program_.plan;
  COTUNE_TRY(const ProgramKey key, KeyOf(call, *table));
  if (!plan_of_.contains(key.call.key)) {
    COTUNE_RETURN_IF_ERROR(MayPrepare(*program, call.stream));
  }
  Result<CachedPlan*> plan = PlanFor(key.call.key, key.program);
  // With registered memory the plan depends on the operands, which change from call to call.
  latest_program_ = {};
  if (plan && !job_.groups().HasRegisteredMemory()) {
    latest_program_ = {table, *plan, call.graph->digest(), call.rows};
  }
  return plan;
}

Status Dispatcher::Run(const ProgramCall& call) {
  if (!CanRun()) return MayRun();
  last_timeout_ns_ = call.timeout_ns;
  if (call.graph->is_single_collective()) {
    COTUNE_TRY(const Program* program, Bound(*call.graph));
    if (Status checked = CheckOperands(*program, call); !checked) return checked;
    COTUNE_TRY(const Problem problem, ProblemOf(*program, call.rows));
    return Run(AsCall(*program, problem, call));
  }
  const Result<CachedPlan*> plan = PlanOf(call);
  if (!plan) return Remember(WithCapture(Propagate(plan), call.stream));
  const Result<ChoiceCaller*> caller = CallerFor(**plan, call.stream);
  if (!caller) return Remember(Propagate(caller));
  LaunchArguments arguments;
  arguments.inputs = call.inputs;
  arguments.outputs = call.outputs;
  arguments.stream = call.stream;
  arguments.deadline_ns = DeadlineOf(call.timeout_ns);
  NoteOperands(call);
  if (marks_calls_) MarkStage(job_.observer(), Stage::kDispatch);
  return Remember(EndedInTheMiddle((*caller)->Launch(arguments, job_.clock())));
}

void Dispatcher::NoteOperands(const ProgramCall& call) {
  job_.temporaries()->NoteCall(call.stream);
  Device& device = job_.device();
  job_.captured_memory().Note(device, call.stream, call.inputs);
  for (const void* output : call.outputs) {
    job_.captured_memory().Note(device, call.stream, {&output, 1});
  }
}

Status Dispatcher::Prepare(const ProgramCall& call) {
  if (Status may = MayRun(); !may) return may;
  const Result<ProgramKey> key = KeyOf(call, table());
  if (!key) return Remember(Propagate(key));
  const Result<CachedPlan*> plan = PlanFor(key->call.key, key->program);
  return plan ? Status{} : Remember(Propagate(plan));
}

Result<CallExplanation> Dispatcher::Explain(const ProgramCall& call) {
  COTUNE_TRY(const ProgramKey key, KeyOf(call, table()));
  return ExplainCall(key.call, *key.program);
}

}  // namespace cotune
