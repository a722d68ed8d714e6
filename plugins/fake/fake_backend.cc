#include "plugins/fake/fake_backend.h"

#include <time.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "plugins/fake/exchange.h"
#include "plugins/fake/gather_reduce.h"
#include "plugins/fake/script.h"

// The handles of the ABI.
struct cotune_backend_t {
  const cotune_host_t* host = nullptr;
  cotune::fake::Script script;
};

struct cotune_group_t {
  cotune_backend_t* backend = nullptr;
  cotune_group_params_t params{};
  std::unique_ptr<cotune::fake::Exchange> exchange;
};

struct cotune_plan_t {
  cotune_group_t* group = nullptr;
  cotune_problem_t problem{};
  cotune::fake::ScriptedChoice choice;
  int64_t calls = 0;
  int64_t done_ns = 0;  // the call takes until then at least
  cotune_launch_t launch{};
};

namespace cotune::fake {
namespace {

constexpr int64_t kSliceNs = 5'000'000;  // how long an abort may go unnoticed

void Explain(cotune_error_t* error, const std::string& text, int32_t failed_rank = -1) {
  if (error == nullptr) return;
  std::strncpy(error->message, text.c_str(), sizeof(error->message) - 1);
  error->message[sizeof(error->message) - 1] = '\0';
  error->failed_rank = failed_rank;
}

// Waits on the host's clock; returns early when the group is aborted.
void WaitUntil(const cotune_host_t& host, const Exchange& exchange, int64_t until_ns) {
  while (!exchange.aborted()) {
    const int64_t left_ns = until_ns - host.now_ns(host.context);
    if (left_ns <= 0) return;
    const timespec slice{0, static_cast<long>(std::min(left_ns, kSliceNs))};
    nanosleep(&slice, nullptr);
  }
}

cotune_status_t Create(const cotune_host_t* host, int32_t, cotune_backend_t** backend,
                       cotune_error_t* error) {
  const char* text = host->setting(host->context, "script");
  auto made = std::make_unique<cotune_backend_t>();
  made->host = host;
  made->script = ParseScript(text == nullptr ? "choice plain default" : text);
  if (!made->script.mistake.empty()) {
    Explain(error, "setting fake.script, " + made->script.mistake);
    return COTUNE_INVALID_ARGUMENT;
  }
  *backend = made.release();
  return COTUNE_OK;
}

void Destroy(cotune_backend_t* backend) { delete backend; }

const void* GetExtension(const cotune_backend_t*, const char*) { return nullptr; }

std::string WhyRefused(const ScriptedChoice& choice, const cotune_problem_t& problem) {
  if (!choice.refuse.empty()) return choice.refuse;
  if (problem.bytes < choice.bytes_min)
    return "needs at least " + std::to_string(choice.bytes_min) + " bytes";
  if (problem.bytes > choice.bytes_max)
    return "takes at most " + std::to_string(choice.bytes_max) + " bytes";
  return "";
}

double CostUs(const ScriptedChoice& choice, uint64_t bytes) {
  return choice.cost_us + choice.cost_per_kib_us * static_cast<double>(bytes) / 1024;
}

cotune_status_t ListChoices(const cotune_backend_t* backend, const cotune_problem_t* problem,
                            cotune_choice_t* first, uint32_t stride, uint32_t capacity,
                            uint32_t* count, cotune_error_t* error) {
  if (problem->memory_kind != COTUNE_MEMORY_HOST || !CanReduce(*problem)) {
    Explain(error, "the fake backend runs on host memory only, with the types that cotune tunes");
    return COTUNE_UNSUPPORTED;
  }
  const auto& choices = backend->script.choices;
  *count = static_cast<uint32_t>(choices.size());
  for (uint32_t i = 0; i < std::min(capacity, *count); ++i) {
    auto& entry = *reinterpret_cast<cotune_choice_t*>(reinterpret_cast<char*>(first) + i * stride);
    const std::string refused = WhyRefused(choices[i], *problem);
    entry.flags = choices[i].is_default ? COTUNE_CHOICE_DEFAULT : 0;
    if (choices[i].collective_prepare) entry.flags |= COTUNE_CHOICE_COLLECTIVE_PREPARE;
    entry.status = refused.empty() ? COTUNE_OK : COTUNE_UNSUPPORTED;
    entry.cost_us = choices[i].model_us;
    entry.workspace_bytes = 0;
    std::strncpy(entry.name, choices[i].name.c_str(), sizeof(entry.name) - 1);
    std::strncpy(entry.reason, refused.c_str(), sizeof(entry.reason) - 1);
  }
  return COTUNE_OK;
}

cotune_status_t GroupCreate(cotune_backend_t* backend, const cotune_group_params_t* params,
                            cotune_group_t** group, cotune_error_t* error) {
  auto made = std::make_unique<cotune_group_t>();
  made->backend = backend;
  made->params = *params;
  made->exchange =
      std::make_unique<Exchange>(*backend->host, params->name, params->rank, params->world_size);
  cotune_status_t status = made->exchange->Begin("", 0);
  if (status == COTUNE_OK) status = made->exchange->Continue(params->deadline_ns);
  if (status != COTUNE_OK) {
    const int32_t late = made->exchange->waiting_for();
    Explain(error, "rank " + std::to_string(late) + " did not join the group", late);
    return status == COTUNE_IN_PROGRESS ? COTUNE_PEER_FAILED : status;
  }
  *group = made.release();
  return COTUNE_OK;
}

cotune_status_t GroupHealth(cotune_group_t* group, cotune_error_t* error) {
  if (!group->exchange->aborted()) return COTUNE_OK;
  Explain(error, "the group was aborted");
  return COTUNE_ABORTED;
}

void GroupAbort(cotune_group_t* group) { group->exchange->Abort(); }

void GroupDestroy(cotune_group_t* group) { delete group; }

cotune_status_t Prepare(cotune_group_t* group, const cotune_problem_t* problem,
                        const char* choice_name, int64_t, cotune_plan_t** plan,
                        cotune_error_t* error) {
  for (const ScriptedChoice& choice : group->backend->script.choices) {
    if (choice.name != choice_name) continue;
    const cotune_host_t& host = *group->backend->host;
    WaitUntil(host, *group->exchange,
              host.now_ns(host.context) + choice.prepare_delay_ms * 1'000'000);
    if (choice.prepare_fails_on == group->params.rank) {
      Explain(error, "scripted: prepare fails");
      return COTUNE_INTERNAL;
    }
    const std::string refused = WhyRefused(choice, *problem);
    if (!refused.empty()) {
      Explain(error, refused);
      return COTUNE_UNSUPPORTED;
    }
    *plan = new cotune_plan_t{group, *problem, choice, 0, 0, {}};
    return COTUNE_OK;
  }
  Explain(error, std::string("there is no choice ") + choice_name);
  return COTUNE_UNSUPPORTED;
}

cotune_status_t Launch(cotune_plan_t* plan, const cotune_launch_t* launch, cotune_error_t* error) {
  const int32_t rank = plan->group->params.rank;
  ++plan->calls;
  plan->launch = *launch;
  const cotune_host_t& host = *plan->group->backend->host;
  plan->done_ns = host.now_ns(host.context) +
                  static_cast<int64_t>(1000 * CostUs(plan->choice, plan->problem.bytes));
  if (plan->choice.launch_fails_on == rank && plan->calls >= plan->choice.launch_fails_at) {
    Explain(error, "scripted: launch fails");
    return COTUNE_INTERNAL;
  }
  if (plan->choice.hangs_on == rank) return COTUNE_OK;
  const bool has_send = plan->problem.collective != COTUNE_BROADCAST || rank == plan->problem.root;
  const cotune_status_t status =
      plan->group->exchange->Begin(launch->send, has_send ? SendBytes(plan->problem) : 0);
  if (status != COTUNE_OK) Explain(error, "the buffers could not be sent");
  return status;
}

void Deliver(cotune_plan_t& plan) {
  const int32_t rank = plan.group->params.rank;
  std::string recv = Receive(plan.problem, plan.group->exchange->sends(), rank);
  if (plan.choice.wrong_on == rank && !recv.empty())
    recv.back() = static_cast<char>(recv.back() ^ 0x10);
  if (!recv.empty()) std::memcpy(plan.launch.recv, recv.data(), recv.size());
  if (plan.choice.overruns_on == rank) static_cast<char*>(plan.launch.recv)[recv.size()] ^= 1;
}

cotune_status_t Progress(cotune_plan_t* plan, int64_t until_ns, cotune_error_t* error) {
  Exchange& exchange = *plan->group->exchange;
  const cotune_host_t& host = *plan->group->backend->host;
  const int64_t deadline_ns = plan->launch.deadline_ns;
  const bool hangs = plan->choice.hangs_on == plan->group->params.rank;
  while (true) {
    const int64_t now_ns = host.now_ns(host.context);
    const int64_t slice_ns = std::min({until_ns, deadline_ns, now_ns + kSliceNs});
    cotune_status_t status = COTUNE_IN_PROGRESS;
    if (hangs) {
      WaitUntil(host, exchange, slice_ns);
      if (exchange.aborted()) status = COTUNE_ABORTED;
    } else {
      status = exchange.Continue(slice_ns);
    }
    if (status == COTUNE_OK) break;
    if (status == COTUNE_ABORTED) Explain(error, "the group was aborted");
    if (status != COTUNE_IN_PROGRESS) return status;
    if (host.now_ns(host.context) >= deadline_ns) {
      const int32_t late = hangs ? plan->group->params.rank : exchange.waiting_for();
      Explain(error, "rank " + std::to_string(late) + " did not come in time", late);
      exchange.Abort();
      return COTUNE_PEER_FAILED;
    }
    if (host.now_ns(host.context) >= until_ns) return COTUNE_IN_PROGRESS;
  }
  WaitUntil(host, exchange, std::min(plan->done_ns, until_ns));
  if (host.now_ns(host.context) < plan->done_ns) return COTUNE_IN_PROGRESS;
  Deliver(*plan);
  return COTUNE_OK;
}

void PlanDestroy(cotune_plan_t* plan) { delete plan; }

constexpr uint32_t BuildFlags() {
  uint32_t flags = 0;
#ifdef __SANITIZE_ADDRESS__
  flags |= COTUNE_BUILD_ASAN;
#endif
#ifdef __SANITIZE_THREAD__
  flags |= COTUNE_BUILD_TSAN;
#endif
  return flags;
}

constexpr cotune_backend_api_t kApi = {
    .struct_size = sizeof(cotune_backend_api_t),
    .abi_minor = COTUNE_ABI_MINOR,
    .build_flags = BuildFlags(),
    .memory_kinds = 1u << COTUNE_MEMORY_HOST,
    .name = "fake",
    .version = "1",
    .create = Create,
    .destroy = Destroy,
    .get_extension = GetExtension,
    .list_choices = ListChoices,
    .group_create = GroupCreate,
    .group_health = GroupHealth,
    .group_abort = GroupAbort,
    .group_destroy = GroupDestroy,
    .prepare = Prepare,
    .launch = Launch,
    .progress = Progress,
    .plan_destroy = PlanDestroy,
};

}  // namespace

const cotune_backend_api_t* BackendApi() { return &kApi; }

}  // namespace cotune::fake
