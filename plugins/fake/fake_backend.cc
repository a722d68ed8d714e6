#include "plugins/fake/fake_backend.h"

#include <unistd.h>

#include <chrono>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>

#include "fmt/format.h"
#include "plugins/fake/script.h"
#include "plugins/fake/scripted_backend.h"
#include "plugins/sdk/backend_shell.h"

namespace cotune::fake {
namespace {

constexpr int32_t kWarning = 2;  // a severity of the log

// Calls itself until its stack has run over.
__attribute__((noinline)) int64_t OverflowStack(const volatile int64_t* outer) {
  if (*outer < 0) return 0;  // never, which the compiler does not know
  volatile int64_t inner[512];
  inner[0] = *outer + 1;
  return OverflowStack(inner) + inner[0];
}

// Breaks the contract of the ABI where the script says so. True: progress is never done.
bool Misbehave(FakeBackend& backend, std::string_view function, std::string_view choice = "") {
  bool is_never_done = false;
  for (size_t i = 0; i < backend.script.breaches.size(); ++i) {
    const Breach& breach = backend.script.breaches[i];
    if (breach.function != function || (breach.on >= 0 && breach.on != backend.rank)) continue;
    if (!breach.choice.empty() && breach.choice != choice) continue;
    const int64_t count = ++backend.calls[i];
    if (count < breach.at) continue;
    const bool waits = breach.how == How::kNeverReturns || breach.how == How::kNeverDone;
    if (waits && count == breach.at) {
      const std::string text = fmt::format("scripted: {} begins to wait for ever", function);
      backend.host.log(backend.host.context, kWarning, text.c_str());
    }
    switch (breach.how) {
      case How::kNeverReturns:
        while (true) std::this_thread::sleep_for(std::chrono::hours(1));
      case How::kNeverDone:
        is_never_done = true;
        break;
      case How::kCrashes:
        std::raise(SIGSEGV);
        break;
      case How::kCrashesAside:
        std::thread([] { std::raise(SIGSEGV); }).join();
        break;
      case How::kOverflows:
        OverflowStack(&count);
        break;
      case How::kExitsWith7:
        _exit(7);
      case How::kExits:
        _exit(0);
      case How::kThrows:
        throw std::runtime_error(fmt::format("scripted: {} throws", function));
      case How::kThrowsInt:
        throw 42;
    }
  }
  return is_never_done;
}

// The table of the shell, each function behind what the script makes of it: a breach of the
// contract has to get past the shell, which ends exceptions and keeps handles in order.
using Shell = sdk::BackendShell<FakeBackend>;

// A handle that is freed also where a breach throws.
template <class Handle>
using Owned = std::unique_ptr<Handle, void (*)(Handle*)>;

FakeBackend& Of(const cotune_backend_t* backend) {
  return Shell::Of(const_cast<cotune_backend_t*>(backend));  // only counters of the script change
}
FakeBackend& BackendOf(cotune_group_t* group) { return Shell::Of(group).backend(); }
FakeBackend& BackendOf(cotune_plan_t* plan) { return Shell::Of(plan).group().backend(); }
FakeBackend& BackendOf(cotune_program_plan_t* plan) {
  if (const FakeRegion* region = Shell::RegionOf(plan)) return region->group().backend();
  return Shell::PartOf(plan)->backend();
}
std::string_view ChoiceOf(cotune_plan_t* plan) { return Shell::Of(plan).choice().name; }

// Breaks the contract in a function of a plan of a program, which is `part` or `region`.
bool Misbehave(cotune_program_plan_t* plan, std::string_view part, std::string_view region) {
  const FakeRegion* const of_region = Shell::RegionOf(plan);
  if (of_region == nullptr) return Misbehave(BackendOf(plan), part);
  return Misbehave(BackendOf(plan), region, of_region->choice().name);
}

cotune_status_t Create(const cotune_host_t* host, int32_t device, cotune_backend_t** backend,
                       cotune_error_t* error) {
  cotune_backend_t* made = nullptr;
  const cotune_status_t status = Shell::Table()->create(host, device, &made, error);
  if (status != COTUNE_OK) return status;
  Owned<cotune_backend_t> owned(made, Shell::Table()->destroy);
  Misbehave(Of(made), "create");
  *backend = owned.release();
  return status;
}

void Destroy(cotune_backend_t* backend) {
  const Owned<cotune_backend_t> owned(backend, Shell::Table()->destroy);
  if (backend != nullptr) Misbehave(Of(backend), "destroy");
}

const cotune_program_v1_t& ProgramTable() {
  return *static_cast<const cotune_program_v1_t*>(
      Shell::Table()->get_extension(nullptr, COTUNE_PROGRAM_EXTENSION));
}

cotune_status_t RegionListChoices(const cotune_backend_t* backend, const cotune_program_t* program,
                                  cotune_choice_t* first, uint32_t stride, uint32_t capacity,
                                  uint32_t* count, cotune_error_t* error) {
  Misbehave(Of(backend), "region_list_choices");
  return ProgramTable().list_choices(backend, program, first, stride, capacity, count, error);
}

cotune_status_t RegionPrepare(cotune_group_t* group, const cotune_program_t* program,
                              const char* choice_name, int64_t deadline_ns,
                              cotune_program_plan_t** plan, cotune_error_t* error) {
  Misbehave(BackendOf(group), "region_prepare", choice_name);
  return ProgramTable().prepare(group, program, choice_name, deadline_ns, plan, error);
}

cotune_status_t PartPrepare(cotune_backend_t* backend, const cotune_program_t* program,
                            int64_t deadline_ns, cotune_program_plan_t** plan,
                            cotune_error_t* error) {
  Misbehave(Of(backend), "part_prepare");
  return ProgramTable().part_prepare(backend, program, deadline_ns, plan, error);
}

cotune_status_t ProgramLaunch(cotune_program_plan_t* plan, const cotune_program_launch_t* launch,
                              cotune_error_t* error) {
  Misbehave(plan, "part_launch", "region_launch");
  return ProgramTable().launch(plan, launch, error);
}

cotune_status_t ProgramProgress(cotune_program_plan_t* plan, int64_t until_ns,
                                cotune_error_t* error) {
  const bool is_never_done = Misbehave(plan, "part_progress", "region_progress");
  return is_never_done ? COTUNE_IN_PROGRESS : ProgramTable().progress(plan, until_ns, error);
}

void ProgramPlanDestroy(cotune_program_plan_t* plan) {
  const Owned<cotune_program_plan_t> owned(plan, ProgramTable().plan_destroy);
  if (plan != nullptr) Misbehave(plan, "part_plan_destroy", "region_plan_destroy");
}

cotune_program_v1_t ProgramTableWithBreaches(bool has_parts, bool has_regions) {
  cotune_program_v1_t table = ProgramTable();
  table.list_choices = has_regions ? RegionListChoices : nullptr;
  table.prepare = has_regions ? RegionPrepare : nullptr;
  table.part_prepare = has_parts ? PartPrepare : nullptr;
  table.launch = ProgramLaunch;
  table.progress = ProgramProgress;
  table.plan_destroy = ProgramPlanDestroy;
  return table;
}

// The table by the abilities of the script; nullptr if it has none.
const cotune_program_v1_t* ProgramTableOf(const Script& script) {
  static const cotune_program_v1_t parts = ProgramTableWithBreaches(true, false);
  static const cotune_program_v1_t regions = ProgramTableWithBreaches(false, true);
  static const cotune_program_v1_t both = ProgramTableWithBreaches(true, true);
  if (script.parts) return script.has_regions() ? &both : &parts;
  return script.has_regions() ? &regions : nullptr;
}

const void* GetExtension(const cotune_backend_t* backend, const char* id) {
  Misbehave(Of(backend), "get_extension");
  if (std::string_view(id) != COTUNE_PROGRAM_EXTENSION) {
    return Shell::Table()->get_extension(backend, id);
  }
  return ProgramTableOf(Of(backend).script);
}

cotune_status_t ListChoices(const cotune_backend_t* backend, const cotune_problem_t* problem,
                            cotune_choice_t* first, uint32_t stride, uint32_t capacity,
                            uint32_t* count, cotune_error_t* error) {
  Misbehave(Of(backend), "list_choices");
  return Shell::Table()->list_choices(backend, problem, first, stride, capacity, count, error);
}

cotune_status_t GroupCreate(cotune_backend_t* backend, const cotune_group_params_t* params,
                            cotune_group_t** group, cotune_error_t* error) {
  Of(backend).rank = params->rank;
  Misbehave(Of(backend), "group_create");
  return Shell::Table()->group_create(backend, params, group, error);
}

cotune_status_t GroupHealth(cotune_group_t* group, cotune_error_t* error) {
  Misbehave(BackendOf(group), "group_health");
  return Shell::Table()->group_health(group, error);
}

void GroupAbort(cotune_group_t* group) {
  Misbehave(BackendOf(group), "group_abort");
  Shell::Table()->group_abort(group);
}

void GroupDestroy(cotune_group_t* group) {
  const Owned<cotune_group_t> owned(group, Shell::Table()->group_destroy);
  if (group != nullptr) Misbehave(BackendOf(group), "group_destroy");
}

cotune_status_t Prepare(cotune_group_t* group, const cotune_problem_t* problem,
                        const char* choice_name, int64_t deadline_ns, cotune_plan_t** plan,
                        cotune_error_t* error) {
  Misbehave(BackendOf(group), "prepare", choice_name);
  return Shell::Table()->prepare(group, problem, choice_name, deadline_ns, plan, error);
}

cotune_status_t Launch(cotune_plan_t* plan, const cotune_launch_t* launch, cotune_error_t* error) {
  Misbehave(BackendOf(plan), "launch", ChoiceOf(plan));
  return Shell::Table()->launch(plan, launch, error);
}

cotune_status_t Progress(cotune_plan_t* plan, int64_t until_ns, cotune_error_t* error) {
  const bool is_never_done = Misbehave(BackendOf(plan), "progress", ChoiceOf(plan));
  return is_never_done ? COTUNE_IN_PROGRESS : Shell::Table()->progress(plan, until_ns, error);
}

void PlanDestroy(cotune_plan_t* plan) {
  const Owned<cotune_plan_t> owned(plan, Shell::Table()->plan_destroy);
  if (plan != nullptr) Misbehave(BackendOf(plan), "plan_destroy", ChoiceOf(plan));
}

cotune_backend_api_t TableWithBreaches() {
  cotune_backend_api_t table = *Shell::Table();
  table.create = Create;
  table.destroy = Destroy;
  table.get_extension = GetExtension;
  table.list_choices = ListChoices;
  table.group_create = GroupCreate;
  table.group_health = GroupHealth;
  table.group_abort = GroupAbort;
  table.group_destroy = GroupDestroy;
  table.prepare = Prepare;
  table.launch = Launch;
  table.progress = Progress;
  table.plan_destroy = PlanDestroy;
  return table;
}

}  // namespace

const cotune_backend_api_t* BackendApi() {
  static const cotune_backend_api_t table = TableWithBreaches();
  return &table;
}

}  // namespace cotune::fake
