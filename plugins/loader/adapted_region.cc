#include "plugins/loader/adapted_region.h"

#include <string>
#include <utility>

#include "fmt/format.h"
#include "plugins/loader/group_plan.h"
#include "plugins/loader/plugin_status.h"
#include "plugins/loader/thread_rule_check.h"

namespace cotune {
namespace {

// A plan of the extension. It lives as long as the backend, which outlives the plan.
class RegionHandle {
 public:
  RegionHandle(const cotune_program_v1_t& extension, cotune_program_plan_t* plan)
      : extension_(extension), plan_(plan) {}

  cotune_status_t Launch(const LaunchArguments& arguments, const cotune_stream_t& stream,
                         cotune_error_t* error) {
    cotune_program_launch_t launch{};
    launch.struct_size = sizeof(launch);
    launch.inputs = arguments.inputs.data();
    launch.outputs = arguments.outputs.data();
    launch.stream = stream;
    launch.deadline_ns = arguments.deadline_ns;
    return extension_.launch(plan_, &launch, error);
  }
  cotune_status_t Progress(int64_t until_ns, cotune_error_t* error) {
    return extension_.progress(plan_, until_ns, error);
  }
  void Destroy() { extension_.plan_destroy(plan_); }

 private:
  const cotune_program_v1_t& extension_;
  cotune_program_plan_t* const plan_;
};

}  // namespace

RegionRequest RegionOf(const Program& program, const Problem& problem) {
  return {.region = program.graph().Lower(),
          .rows = program.RowsAt(problem),
          .group = program.group(),
          .topology_digest = problem.topology_digest,
          .rounds_values = program.group().rounds_values};
}

AbiProgram ToAbi(const RegionRequest& request) {
  return AbiProgram(request.region, request.rows, request.group, request.topology_digest,
                    request.rounds_values);
}

Result<std::unique_ptr<Plan>> PrepareRegion(const std::shared_ptr<GroupContext>& context,
                                            const Program& program, const Problem& problem,
                                            const Choice& choice, int64_t deadline_ns) {
  const char* const backend = context->table().name;
  if (!context->extensions.has_regions()) {
    return Fail(ErrorCode::kUnsupported, kNoFusion, fmt::format("backend {}", backend));
  }
  const cotune_program_v1_t& extension = *context->extensions.program;
  const RegionRequest request = RegionOf(program, problem);
  const AbiProgram region = ToAbi(request);
  const std::string name(choice.id.choice_name());
  auto made_subject = std::make_unique<CallSubject>(
      CallSubject::OfChoice(backend, context->backend->plugin, choice.id, problem));
  made_subject->text +=
      fmt::format(", a region of a program with {} operations", request.region.nodes().size());
  std::unique_ptr<const CallSubject> subject = std::move(made_subject);
  cotune_program_plan_t* plan = nullptr;
  cotune_error_t error = EmptyError();
  const ThreadRuleCheck::Scope scope(context->guard, "prepare");
  COTUNE_TRY(const cotune_status_t status,
             InvokeApart(*context->backend, *subject, "prepare", deadline_ns,
                         GroupContext::AbortOf(context), [&] {
                           return extension.prepare(context->handle, &region.program(),
                                                    name.c_str(), deadline_ns, &plan, &error);
                         }));
  if (status != COTUNE_OK || plan == nullptr) {
    return ToError(status < 0 ? status : COTUNE_INTERNAL, error, "prepare", backend,
                   context->parameters.job_ranks);
  }
  return std::make_unique<GroupPlan<RegionHandle>>(context, std::move(subject),
                                                   RegionHandle(extension, plan),
                                                   problem.cls.memory, choice.is_capturable);
}

}  // namespace cotune
