#include "core/choice/recipe_plan.h"

#include <utility>
#include <vector>

#include "core/base/check.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// The call of a bare collective is that of the collective outside of programs: ranks with other
// operations around the same collectives run them together.
Result<std::unique_ptr<Plan>> PrepareBackendStep(const BackendCall& call,
                                                 const RecipePlan::StepChoice& by,
                                                 int64_t deadline_ns) {
  if (by.member == nullptr || by.member->group == nullptr) {
    return Fail(ErrorCode::kAborted, "its backend has no group", by.choice.id.text());
  }
  return by.member->group->Prepare(call.program, call.problem, by.choice, deadline_ns);
}

Result<std::unique_ptr<Plan>> PreparePart(const ProgramGraph& part, uint64_t rows,
                                          const GroupShape& group, const ProgramSupport& support,
                                          int64_t deadline_ns) {
  if (support.part_backend == nullptr) {
    return Fail(ErrorCode::kUnsupported, "no backend runs the local operations of programs", "",
                "none of the backends that are loaded has parts for this memory",
                "load one that has; `cotune plugin list` says which do");
  }
  return support.part_backend->PreparePart({.part = part,
                                            .rows = rows,
                                            .memory = group.memory,
                                            .world_size = group.world_size,
                                            .rounds_values = support.rounds_values},
                                           deadline_ns);
}

// Prepares all steps of a recipe: those of backends first. The choices of a program have different
// backend steps and the same parts, so that threads which prepare one choice each compile different
// kernels at once. If they began with a part, all of them would wait for the one that compiles it.
Result<std::vector<std::unique_ptr<Plan>>> PrepareSteps(
    const Program& program, uint64_t rows, const Recipe& recipe,
    const std::vector<BackendCall>& calls, std::span<const RecipePlan::StepChoice> choices,
    const ProgramSupport& support, int64_t deadline_ns) {
  std::vector<std::unique_ptr<Plan>> plans(recipe.steps.size());
  const std::vector<size_t> backend_steps = recipe.backend_steps();
  for (size_t c = 0; c < backend_steps.size(); ++c) {
    COTUNE_TRY(plans[backend_steps[c]], PrepareBackendStep(calls[c], choices[c], deadline_ns));
  }
  for (size_t i = 0; i < recipe.steps.size(); ++i) {
    const RecipeStep& step = recipe.steps[i];
    if (!step.is_part()) continue;
    COTUNE_TRY(plans[i], PreparePart(step.program, rows, program.group(), support, deadline_ns));
  }
  return plans;
}

}  // namespace

Result<std::unique_ptr<Plan>> RecipePlan::Prepare(const Program& program, const Problem& problem,
                                                  const Recipe& recipe,
                                                  std::span<const StepChoice> choices,
                                                  const ProgramSupport& support,
                                                  int64_t deadline_ns) {
  const ProgramGraph& graph = program.graph();
  const uint64_t rows = program.RowsAt(problem);
  auto made = std::unique_ptr<RecipePlan>(new RecipePlan());
  made->memory_ = program.group().memory;
  made->input_count_ = graph.inputs().size();
  for (const ProgramOutput& output : graph.outputs()) made->into_.push_back(output.into);
  COTUNE_TRY(const std::vector<BackendCall> calls,
             BackendCalls(recipe, program, rows, problem.topology_digest, support.rounds_values));
  COTUNE_CHECK(calls.size() == choices.size(), "each backend step has a choice");
  COTUNE_TRY(std::vector<std::unique_ptr<Plan>> plans,
             PrepareSteps(program, rows, recipe, calls, choices, support, deadline_ns));
  // The steps of backends have the order of the choice's id, which may not be that of the recipe.
  std::vector<bool> has_buffers_of(recipe.steps.size(), false);
  const std::vector<size_t> backend_steps = recipe.backend_steps();
  for (size_t c = 0; c < backend_steps.size(); ++c) {
    has_buffers_of[backend_steps[c]] = calls[c].program.is_single_collective();
  }
  for (size_t i = 0; i < recipe.steps.size(); ++i) {
    const RecipeStep& step = recipe.steps[i];
    std::unique_ptr<Plan> plan = std::move(plans[i]);
    const bool has_buffers = has_buffers_of[i];
    made->is_capturable_ = made->is_capturable_ && plan->is_capturable();
    made->steps_.push_back({.plan = std::move(plan),
                            .has_buffers = has_buffers,
                            .inputs = step.inputs,
                            .outputs = step.outputs,
                            .input_addresses = std::vector<const void*>(step.inputs.size()),
                            .output_addresses = std::vector<void*>(step.outputs.size())});
  }
  made->slots_.resize(graph.inputs().size() + graph.outputs().size());
  for (const ValueIndex input : recipe.inputs.Shares()) {
    const uint64_t share_bytes =
        program.BytesOf(input, rows) / static_cast<uint64_t>(program.group().world_size);
    made->shares_.push_back(
        {static_cast<size_t>(input), static_cast<uint64_t>(support.rank) * share_bytes});
    made->slots_.push_back(nullptr);
  }
  const TemporaryLayout layout = LayOut(recipe, program.group().world_size, rows);
  std::byte* base = nullptr;
  if (layout.bytes > 0) {
    COTUNE_CHECK(support.temporaries != nullptr,
                 "a program with values between its steps has memory for them");
    COTUNE_TRY(std::byte* const taken, support.temporaries->Take(layout.bytes));
    base = taken;
  }
  for (const uint64_t offset : layout.offsets) {
    made->slots_.push_back(base == nullptr ? nullptr : base + offset);
  }
  return made;
}

Status RecipePlan::LaunchStep(Step& step) {
  LaunchArguments arguments = call_;
  if (step.has_buffers) {
    arguments.send = At(step.inputs.front());
    arguments.recv = At(step.outputs.front());
    return step.plan->Launch(arguments);
  }
  for (size_t i = 0; i < step.inputs.size(); ++i) step.input_addresses[i] = At(step.inputs[i]);
  for (size_t i = 0; i < step.outputs.size(); ++i) step.output_addresses[i] = At(step.outputs[i]);
  arguments.inputs = step.input_addresses;
  arguments.outputs = step.output_addresses;
  return step.plan->Launch(arguments);
}

Status RecipePlan::Launch(const LaunchArguments& arguments) {
  COTUNE_CHECK(arguments.inputs.size() == input_count_ && arguments.outputs.size() == into_.size(),
               "a program is called with one address for each input and output");
  for (size_t i = 0; i < input_count_; ++i) {
    // Read only, but where an output overwrites it.
    slots_[i] =
        const_cast<void*>(arguments.inputs[i]);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  }
  for (size_t i = 0; i < into_.size(); ++i) slots_[input_count_ + i] = arguments.outputs[i];
  for (size_t i = 0; i < shares_.size(); ++i) {
    slots_[input_count_ + into_.size() + i] =
        static_cast<std::byte*>(slots_[shares_[i].input]) + shares_[i].offset_bytes;
  }
  call_ = {.stream = arguments.stream, .deadline_ns = arguments.deadline_ns};
  step_ = 0;
  if (memory_ == MemoryKind::kHost) return LaunchStep(steps_.front());
  for (Step& step : steps_) {
    if (Status launched = LaunchStep(step); !launched) return launched;
  }
  return {};
}

Result<bool> RecipePlan::Progress(int64_t until_ns) {
  while (true) {
    Result<bool> done = steps_[step_].plan->Progress(until_ns);
    if (!done || !*done) return done;
    if (++step_ == steps_.size()) return true;
    COTUNE_RETURN_IF_ERROR(LaunchStep(steps_[step_]));
  }
}

}  // namespace cotune
