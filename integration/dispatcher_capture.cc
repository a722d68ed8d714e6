// Calls that are captured in CUDA graphs, and choices that cannot be.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/event_sink.h"
#include "core/choice/choice_lists.h"
#include "core/recipe/recipe_id.h"
#include "fmt/format.h"
#include "integration/dispatcher.h"
#include "integration/dispatcher_plan.h"

namespace cotune {

std::optional<Choice> Dispatcher::ChoiceInGraphs(const Program& program, const Problem& problem,
                                                 const ChoiceId& eager) const {
  std::optional<Choice> found;
  if (problem.cls.buffer_class == BufferClass::kPlain) {
    const Result<ChoiceId> id = StepsInGraphs(program, problem, eager);
    if (id) {
      if (auto steps = FindAgreedSteps(program, problem, *id)) found = std::move(steps->choice);
    }
  } else if (Result<Choice> fallback = job_.DefaultChoice(program, problem)) {
    // All ranks run this very program: an agreed one runs on plain buffers.
    found = std::move(*fallback);
  }
  if (!found || found->id == eager || !found->is_capturable) return std::nullopt;
  return found;
}

Result<ChoiceId> Dispatcher::StepsInGraphs(const Program& program, const Problem& problem,
                                           const ChoiceId& eager) const {
  if (eager.has_host_keys()) {
    COTUNE_TRY(const Choice fallback, job_.DefaultChoice(program, problem));
    return fallback.id;
  }
  const std::vector<Problem> collectives = StepsOf(program, problem);
  std::vector<ChoiceId> steps = ChoicesOfCollectives(program.graph(), eager);
  if (steps.empty()) return eager;
  // A collective that is agreed runs alike in all programs, captured ones too. A rank that has it
  // in a program by itself captures its agreed choice, whatever runs the other collectives here.
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::optional<NearbyChoice> own = FindAgreed(collectives[i], steps[i]);
    if (own && own->choice.is_capturable) continue;
    COTUNE_TRY(ChoiceId fallback, DefaultOf(collectives[i]));
    steps[i] = std::move(fallback);
  }
  return ChoiceId::Join(steps);
}

Status Dispatcher::PrepareForGraphs(CachedPlan& plan, int64_t deadline_ns) {
  const Problem& problem = plan.key.problem;
  plan.is_eager = problem.cls.memory == MemoryKind::kCuda && !plan.caller->is_capturable();
  if (!plan.is_eager) return {};
  // Ready before a capture begins, while code can be loaded and memory taken. Which choice it is
  // follows from the flags of choices, hence it is the same on all ranks.
  const std::optional<Choice> fallback = ChoiceInGraphs(plan.program, problem, plan.caller->id());
  if (!fallback) return {};
  auto caller = MakeCaller(job_.groups(), plan.program, plan.key.problem, *fallback);
  Status prepared = caller ? (*caller)->Precompile(deadline_ns) : Propagate(caller);
  if (prepared) {
    if ((*caller)->is_capturable()) plan.in_graphs = std::move(*caller);
    return {};
  }
  const Error& error = prepared.error();
  if (!error.ranks.empty() || error.code == ErrorCode::kDeadline) return prepared;
  // Plain calls go on. A captured one ends the group, since other ranks may have the default ready.
  plan.graphs_failure = error;
  plan.graphs_failure->code = ErrorCode::kEnvironment;
  plan.graphs_failure->what =
      fmt::format("{}, which captured calls run in the place of {}, cannot be made ready: {}",
                  fallback->id.text(), plan.caller->id().text(), error.what);
  return {};
}

Result<ChoiceCaller*> Dispatcher::CallerFor(CachedPlan& plan, void* stream) {
  if (!plan.is_eager) return plan.caller.get();
  COTUNE_TRY(const bool is_captured, job_.device().IsCapturing(stream));
  if (!is_captured) return plan.caller.get();
  const std::string& eager = plan.caller->id().text();
  if (plan.graphs_failure) return tl::make_unexpected(*plan.graphs_failure);
  if (plan.in_graphs == nullptr) {
    return Fail(
        ErrorCode::kUnsupported,
        fmt::format("{} cannot be captured in a CUDA graph, and no default stands in for it",
                    eager),
        ToText(plan.key.problem), "the call's stream is being captured",
        "leave this call out of the graph, or tune with a backend whose choices can be "
        "captured");
  }
  if (rank_ == 0 && job_.lines() != nullptr && eager_.insert(eager).second) {
    const ChoiceId& instead = plan.in_graphs->id();
    const bool has_steps = plan.caller->id().has_steps() || instead.has_steps();
    EmitLine(
        *job_.lines(), Severity::kWarning,
        fmt::format("{} cannot be captured in a CUDA graph: captured calls run {}", eager,
                    has_steps ? fmt::format("{}, with the default of each collective whose choice "
                                            "cannot be captured",
                                            instead.text())
                              : fmt::format("the default, {}", instead.text())));
  }
  return plan.in_graphs.get();
}

Status Dispatcher::MayPrepare(const Program& program, void* stream) {
  COTUNE_TRY(const bool is_captured, job_.device().IsCapturing(stream));
  if (!is_captured) return {};
  return Fail(ErrorCode::kUnsupported, "the program is not ready to be captured in a CUDA graph",
              program.graph().name(), "it was not called or prepared with these rows and operands",
              "call it once before the capture, or cotune_program_prepare");
}

Status Dispatcher::WithCapture(Status status, void* stream) {
  Error& error = status.error();
  // A refusal has nothing to do with the capture: it would come outside of one as well.
  if (!EndsTheGroup(error.code) || !error.ranks.empty()) return status;
  const Result<bool> is_captured = job_.device().IsCapturing(stream);
  if (!is_captured || !*is_captured) return status;
  error.cause += fmt::format("{}the call is captured in a CUDA graph and was not ready before",
                             error.cause.empty() ? "" : "; ");
  if (error.next_step.empty()) error.next_step = "make the call once before the capture";
  return status;
}

}  // namespace cotune
