// The host backend as a plugin that tells the test which loads it of every step (step_events.h).
#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string_view>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/api/cotune_program_v1.h"
#include "plugins/host/backend.h"
#include "tests/multi_process/testing/step_events.h"

namespace cotune {
namespace {

const cotune_backend_api_t& Host() { return *host::BackendApi(); }

const cotune_program_v1_t& HostPrograms() {
  return *static_cast<const cotune_program_v1_t*>(
      Host().get_extension(nullptr, COTUNE_PROGRAM_EXTENSION));
}

// The largest operand of a step.
struct LargestOperand {
  uint32_t index = 0;
  uint64_t bytes = 0;
};

// Those of all plans, which several threads make.
class Operands {
 public:
  void Put(const void* plan, const LargestOperand& operand) {
    const std::lock_guard lock(mutex_);
    of_plan_[plan] = operand;
  }
  LargestOperand Of(const void* plan) {
    const std::lock_guard lock(mutex_);
    return of_plan_[plan];
  }

 private:
  std::mutex mutex_;
  std::map<const void*, LargestOperand> of_plan_;  // plans of both kinds
};

Operands& KnownOperands() {
  static Operands operands;
  return operands;
}

uint64_t BytesOf(const cotune_dtype_t& dtype, uint64_t elements) {
  return elements * dtype.bits * dtype.lanes / 8;
}

void Tell(const StepEvent& event) {
  static const auto hook = reinterpret_cast<StepHook>(dlsym(RTLD_DEFAULT, kStepHookName));
  if (hook != nullptr) hook(event);
}

cotune_status_t Prepare(cotune_group_t* group, const cotune_problem_t* problem,
                        const char* choice_name, int64_t deadline_ns, cotune_plan_t** plan,
                        cotune_error_t* error) {
  const cotune_status_t status =
      Host().prepare(group, problem, choice_name, deadline_ns, plan, error);
  const bool sends_blocks =
      problem->collective == COTUNE_REDUCE_SCATTER || problem->collective == COTUNE_ALL_TO_ALL;
  const uint64_t blocks = sends_blocks ? static_cast<uint64_t>(problem->world_size) : 1;
  if (status != COTUNE_OK) return status;
  KnownOperands().Put(*plan, {.bytes = BytesOf(problem->dtype, problem->count * blocks)});
  return status;
}

cotune_status_t PreparePart(cotune_backend_t* backend, const cotune_program_t* program,
                            int64_t deadline_ns, cotune_program_plan_t** plan,
                            cotune_error_t* error) {
  const cotune_status_t status =
      HostPrograms().part_prepare(backend, program, deadline_ns, plan, error);
  if (status != COTUNE_OK) return status;
  LargestOperand largest;
  for (uint32_t i = 0; i < program->input_count; ++i) {
    const auto* values = reinterpret_cast<const char*>(program->values);
    const auto& value =
        *reinterpret_cast<const cotune_value_t*>(values + size_t{i} * program->value_stride);
    const uint64_t bytes = BytesOf(value.dtype, value.rows * value.columns);
    if (bytes > largest.bytes) largest = {i, bytes};
  }
  KnownOperands().Put(*plan, largest);
  return status;
}

cotune_status_t Launch(cotune_plan_t* plan, const cotune_launch_t* launch, cotune_error_t* error) {
  Tell({.operand = launch->send,
        .operand_bytes = KnownOperands().Of(plan).bytes,
        .deadline_ns = launch->deadline_ns});
  return Host().launch(plan, launch, error);
}

cotune_status_t LaunchPart(cotune_program_plan_t* plan, const cotune_program_launch_t* launch,
                           cotune_error_t* error) {
  const LargestOperand operand = KnownOperands().Of(plan);
  Tell({.operand = launch->inputs[operand.index],
        .operand_bytes = operand.bytes,
        .deadline_ns = launch->deadline_ns});
  return HostPrograms().launch(plan, launch, error);
}

// A step is progressed until it is done, and then no more.
cotune_status_t Progress(cotune_plan_t* plan, int64_t until_ns, cotune_error_t* error) {
  const cotune_status_t status = Host().progress(plan, until_ns, error);
  if (status == COTUNE_OK) Tell({.has_ended = true});
  return status;
}

cotune_status_t ProgressPart(cotune_program_plan_t* plan, int64_t until_ns, cotune_error_t* error) {
  const cotune_status_t status = HostPrograms().progress(plan, until_ns, error);
  if (status == COTUNE_OK) Tell({.has_ended = true});
  return status;
}

const void* GetExtension(const cotune_backend_t* backend, const char* id) {
  static const cotune_program_v1_t programs = [] {
    cotune_program_v1_t table = HostPrograms();
    table.part_prepare = PreparePart;
    table.launch = LaunchPart;
    table.progress = ProgressPart;
    return table;
  }();
  if (std::string_view(id) == COTUNE_PROGRAM_EXTENSION) return &programs;
  return Host().get_extension(backend, id);
}

const cotune_backend_api_t* ObservedApi() {
  static const cotune_backend_api_t observed = [] {
    cotune_backend_api_t table = Host();
    table.get_extension = GetExtension;
    table.prepare = Prepare;
    table.launch = Launch;
    table.progress = Progress;
    return table;
  }();
  return &observed;
}

}  // namespace
}  // namespace cotune

extern "C" COTUNE_EXPORT const cotune_backend_api_t* cotune_backend_query_v1(
    uint32_t /*host_abi_minor*/, cotune_error_t* /*refusal*/) {
  return cotune::ObservedApi();
}
