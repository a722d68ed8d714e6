#include "tests/multi_process/altered_host_for_test.h"

#include <condition_variable>
#include <mutex>
#include <set>

#include "plugins/host/backend.h"

namespace cotune {
namespace {

// A C table has no place for what its functions know: this is the process's, made once.
struct State {
  const cotune_backend_api_t* host = host::BackendApi();
  std::string choice;
  std::mutex mutex;
  std::condition_variable aborted_changed;
  bool aborted = false;
  std::set<const cotune_plan_t*> altered_plans;
  void* recv = nullptr;  // of the launch under way
};

State& TheState() {
  static State state;
  return state;
}

cotune_status_t Prepare(cotune_group_t* group, const cotune_problem_t* problem,
                        const char* choice_name, int64_t deadline_ns, cotune_plan_t** plan,
                        cotune_error_t* error) {
  State& state = TheState();
  const cotune_status_t status =
      state.host->prepare(group, problem, choice_name, deadline_ns, plan, error);
  const std::scoped_lock lock(state.mutex);
  if (status == COTUNE_OK && state.choice == choice_name) state.altered_plans.insert(*plan);
  return status;
}

void PlanDestroy(cotune_plan_t* plan) {
  State& state = TheState();
  {
    const std::scoped_lock lock(state.mutex);
    state.altered_plans.erase(plan);
  }
  state.host->plan_destroy(plan);
}

bool IsAltered(const cotune_plan_t* plan) {
  const std::scoped_lock lock(TheState().mutex);
  return TheState().altered_plans.contains(plan);
}

cotune_status_t GroupCreate(cotune_backend_t* backend, const cotune_group_params_t* params,
                            cotune_group_t** group, cotune_error_t* error) {
  State& state = TheState();
  {
    const std::scoped_lock lock(state.mutex);
    state.aborted = false;
  }
  return state.host->group_create(backend, params, group, error);
}

void GroupAbort(cotune_group_t* group) {
  State& state = TheState();
  {
    const std::scoped_lock lock(state.mutex);
    state.aborted = true;
  }
  state.aborted_changed.notify_all();
  state.host->group_abort(group);
}

// Never starts, and ignores its deadline.
cotune_status_t HangingLaunch(cotune_plan_t* plan, const cotune_launch_t* launch,
                              cotune_error_t* error) {
  return IsAltered(plan) ? COTUNE_OK : TheState().host->launch(plan, launch, error);
}

cotune_status_t HangingProgress(cotune_plan_t* plan, int64_t until_ns, cotune_error_t* error) {
  State& state = TheState();
  if (!IsAltered(plan)) return state.host->progress(plan, until_ns, error);
  std::unique_lock lock(state.mutex);
  state.aborted_changed.wait(lock, [&] { return state.aborted; });
  return COTUNE_ABORTED;
}

cotune_status_t NotingLaunch(cotune_plan_t* plan, const cotune_launch_t* launch,
                             cotune_error_t* error) {
  TheState().recv = launch->recv;
  return TheState().host->launch(plan, launch, error);
}

cotune_status_t SpoilingProgress(cotune_plan_t* plan, int64_t until_ns, cotune_error_t* error) {
  const cotune_status_t status = TheState().host->progress(plan, until_ns, error);
  if (status == COTUNE_OK && IsAltered(plan)) *static_cast<unsigned char*>(TheState().recv) ^= 1;
  return status;
}

cotune_status_t ListOneLess(const cotune_backend_t* backend, const cotune_problem_t* problem,
                            cotune_choice_t* first, uint32_t stride, uint32_t capacity,
                            uint32_t* count, cotune_error_t* error) {
  const cotune_status_t status =
      TheState().host->list_choices(backend, problem, first, stride, capacity, count, error);
  if (status == COTUNE_OK && *count > 1) --*count;
  return status;
}

}  // namespace

const cotune_backend_api_t* AlteredHost(Alteration alteration, int rank, const std::string& choice,
                                        int own_rank) {
  if (own_rank != rank) return host::BackendApi();
  TheState().choice = choice;
  static cotune_backend_api_t table = *host::BackendApi();
  table.prepare = Prepare;
  table.plan_destroy = PlanDestroy;
  table.group_create = GroupCreate;
  table.group_abort = GroupAbort;
  switch (alteration) {
    case Alteration::kHangs:
      table.launch = HangingLaunch;
      table.progress = HangingProgress;
      break;
    case Alteration::kWrongValue:
      table.launch = NotingLaunch;
      table.progress = SpoilingProgress;
      break;
    case Alteration::kListsAnother:
      table.list_choices = ListOneLess;
      break;
    case Alteration::kOtherVersion:
      table.version = "999.0.0";
      break;
  }
  return &table;
}

}  // namespace cotune
