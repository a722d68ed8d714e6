#include "plugins/nccl/backend.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu/driver/library_search.h"
#include "plugins/nccl/call_record.h"
#include "plugins/nccl/choice_list.h"
#include "plugins/nccl/gpu.h"
#include "plugins/nccl/group.h"
#include "plugins/nccl/nccl_library.h"
#include "plugins/nccl/process_settings.h"
#include "plugins/nccl/sdk_names.h"
#include "plugins/sdk/abi_guard.h"

struct cotune_backend_t {
  const cotune_host_t* host;
  std::unique_ptr<cotune::nccl::Gpu> gpu;
  cotune::nccl::NcclLibrary nccl;
  cotune::nccl::Lacks lacks;
  bool compares_calls;
};

struct cotune_group_t {
  const cotune_backend_t* backend;
  std::unique_ptr<cotune::nccl::Group> group;
};

struct cotune_plan_t {
  const cotune_backend_t* backend;
  cotune::nccl::Group* group;
  cotune::nccl::Problem problem;
  cotune::nccl::Way way;
  cotune::nccl::CallRecord record;
};

namespace cotune::nccl {
namespace {

constexpr char kName[] = "nccl";
constexpr char kVersion[] = "1.0.0";
constexpr int kRanksMax = 64;

constexpr sdk::ProblemLimits kLimits{
    .memory_kind = COTUNE_MEMORY_CUDA, .ranks_max = kRanksMax, .takes_symmetric = true};

template <class Body>
cotune_status_t Guard(cotune_error_t* error, Body body) {
  return sdk::Guard(kName, error, body);
}

std::string Setting(const cotune_host_t& host, const char* key) {
  const char* value = host.setting == nullptr ? nullptr : host.setting(host.context, key);
  return value == nullptr ? "" : value;
}

Result<bool> ComparesCalls(const cotune_host_t& host) {
  const std::string value = Setting(host, "check_calls");
  if (value == "on" || value == "1") return true;
  if (value.empty() || value == "off" || value == "0") return false;
  return Fail(COTUNE_INVALID_ARGUMENT,
              fmt::format("check_calls is '{}'; give 'on' or 'off'", value));
}

Lacks LacksOf(const NcclLibrary& nccl, const std::string& why_no_tuner) {
  Lacks lacks;
  if (nccl.version() < kOldestTunerVersion) {
    lacks.tuner = fmt::format("NCCL {} cannot be told an algorithm; 2.22 or newer can",
                              VersionText(nccl.version()));
  } else {
    lacks.tuner = why_no_tuner;
  }
  if (!nccl.has_windows()) {
    lacks.windows = fmt::format("NCCL {} has no symmetric memory; 2.27 or newer has",
                                VersionText(nccl.version()));
  }
  return lacks;
}

cotune_status_t Create(const cotune_host_t* host, int32_t device, cotune_backend_t** backend,
                       cotune_error_t* error) {
  return Guard(error, [&]() -> Result<void> {
    if (!COTUNE_HAS_FIELD(cotune_host_t, host, setting)) {
      return Fail(COTUNE_INVALID_ARGUMENT, "the host's service table is older than version 1.0");
    }
    const auto compares_calls = ComparesCalls(*host);
    if (!compares_calls) return tl::unexpected(compares_calls.error());
    // The GPU first: without one a large library need not be read.
    auto gpu = Gpu::Open(device);
    if (!gpu) return tl::unexpected(gpu.error());
    auto why_no_tuner = ApplyProcessSettings();
    if (!why_no_tuner) return tl::unexpected(why_no_tuner.error());
    auto nccl = NcclLibrary::Open(Setting(*host, "library"), gpu::OwnEnvironment());
    if (!nccl) return tl::unexpected(nccl.error());
    Lacks lacks = LacksOf(*nccl, *why_no_tuner);
    if (host->log != nullptr) {
      const std::string text =
          fmt::format("nccl: {} from {}", VersionText(nccl->version()), nccl->path());
      host->log(host->context, 0, text.c_str());
    }
    *backend = new cotune_backend_t{host, std::move(*gpu), std::move(*nccl), std::move(lacks),
                                    *compares_calls};
    return {};
  });
}

void Destroy(cotune_backend_t* backend) { delete backend; }

cotune_status_t MemoryRegister(cotune_group_t* group, void* data, uint64_t bytes,
                               int64_t deadline_ns, cotune_error_t* error) {
  return Guard(error, [&] { return group->group->RegisterMemory(data, bytes, deadline_ns); });
}

void MemoryUnregister(cotune_group_t* group, void* data) { group->group->UnregisterMemory(data); }

constexpr cotune_memory_v1_t kMemory = {.struct_size = sizeof(cotune_memory_v1_t),
                                        .flags = 0,
                                        .memory_register = MemoryRegister,
                                        .memory_unregister = MemoryUnregister};

const void* GetExtension(const cotune_backend_t* /*backend*/, const char* id) {
  return std::string_view(id) == COTUNE_MEMORY_EXTENSION ? &kMemory : nullptr;
}

// CheckProblem, and what NCCL adds.
Result<Problem> ProblemOf(const cotune_problem_t& abi) {
  auto problem = sdk::CheckProblem(abi, kLimits);
  if (problem && problem->collective == Collective::kAllToAll && problem->in_place &&
      problem->world_size > 1) {
    return Fail(COTUNE_UNSUPPORTED,
                "all_to_all in place: NCCL would send from the buffer while it receives into it");
  }
  return problem;
}

cotune_choice_t ToAbi(const Choice& choice) {
  cotune_choice_t out{};
  out.struct_size = sizeof(out);
  out.cost_us = choice.cost_us;
  sdk::CopyText(choice.name, out.name);
  sdk::CopyText(choice.reason, out.reason);
  if (!choice.reason.empty()) {
    out.status = COTUNE_UNSUPPORTED;
    return out;
  }
  out.status = COTUNE_OK;
  out.flags = COTUNE_CHOICE_CAPTURABLE | COTUNE_CHOICE_REPRODUCIBLE;
  if (choice.is_default) out.flags |= COTUNE_CHOICE_DEFAULT;
  return out;
}

cotune_status_t List(const cotune_backend_t* backend, const cotune_problem_t* problem,
                     cotune_choice_t* first, uint32_t stride, uint32_t capacity, uint32_t* count,
                     cotune_error_t* error) {
  return Guard(error, [&]() -> Result<void> {
    auto checked = ProblemOf(*problem);
    if (!checked) return tl::unexpected(checked.error());
    std::vector<cotune_choice_t> choices;
    for (const Choice& choice : ListChoices(*checked, backend->lacks)) {
      choices.push_back(ToAbi(choice));
    }
    return sdk::WriteChoices(choices, first, stride, capacity, count);
  });
}

cotune_status_t GroupCreate(cotune_backend_t* backend, const cotune_group_params_t* params,
                            cotune_group_t** group, cotune_error_t* error) {
  return Guard(error, [&]() -> Result<void> {
    if (auto checked = sdk::CheckGroupParams(*params, kRanksMax); !checked) return checked;
    if (params->device != backend->gpu->ordinal()) {
      return Fail(COTUNE_INVALID_ARGUMENT,
                  fmt::format("group '{}' is on device {}, the backend on device {}", params->name,
                              params->device, backend->gpu->ordinal()));
    }
    auto joined =
        Group::Join(*backend->host, *params, *backend->gpu, backend->nccl, backend->compares_calls);
    if (!joined) return tl::unexpected(joined.error());
    *group = new cotune_group_t{backend, std::move(*joined)};
    return {};
  });
}

cotune_status_t GroupHealth(cotune_group_t* group, cotune_error_t* error) {
  return Guard(error, [&]() -> Result<void> {
    if (auto failure = group->group->HealthOfCompleteCalls()) return tl::unexpected(*failure);
    return {};
  });
}

void GroupAbort(cotune_group_t* group) { group->group->Abort(); }

void GroupDestroy(cotune_group_t* group) { delete group; }

cotune_status_t Prepare(cotune_group_t* group, const cotune_problem_t* problem,
                        const char* choice_name, int64_t /*deadline_ns*/, cotune_plan_t** plan,
                        cotune_error_t* error) {
  return Guard(error, [&]() -> Result<void> {
    Group& ranks = *group->group;
    if (auto failure = ranks.Health()) return tl::unexpected(*failure);
    auto checked = ProblemOf(*problem);
    if (!checked) return tl::unexpected(checked.error());
    if (checked->world_size != ranks.world_size()) {
      return Fail(COTUNE_INVALID_ARGUMENT, fmt::format("a problem of {} ranks in a group of {}",
                                                       checked->world_size, ranks.world_size()));
    }
    auto way = WayOf(*checked, group->backend->lacks, choice_name);
    if (!way) return tl::unexpected(way.error());
    if (auto allowed = ranks.CheckWay(*checked, *way); !allowed) return allowed;
    ranks.WatchLaunches();
    *plan =
        new cotune_plan_t{group->backend, &ranks, *checked, *way, RecordOf(*checked, choice_name)};
    return {};
  });
}

cotune_status_t Launch(cotune_plan_t* plan, const cotune_launch_t* launch, cotune_error_t* error) {
  return Guard(error, [&]() -> Result<void> {
    if (launch->stream.kind != COTUNE_STREAM_CUDA) {
      return Fail(COTUNE_INVALID_ARGUMENT,
                  fmt::format("stream kind {}: NCCL needs a CUDA stream", launch->stream.kind));
    }
    if (launch->stream.device != plan->backend->gpu->ordinal()) {
      return Fail(COTUNE_INVALID_ARGUMENT,
                  fmt::format("the stream is on device {}, the group on device {}",
                              launch->stream.device, plan->backend->gpu->ordinal()));
    }
    const Problem& problem = plan->problem;
    auto fits = sdk::CheckBuffers(problem, plan->group->rank(), launch->send, launch->recv);
    if (!fits) return fits;
    if (problem.collective == Collective::kAllToAll && problem.world_size > 1 &&
        problem.count > 0 && launch->send == launch->recv) {
      return Fail(COTUNE_INVALID_ARGUMENT,
                  "send and receive buffers are the same, and the problem does not say in place");
    }
    return plan->group->Launch(problem, plan->way, plan->record, {launch->send, launch->recv},
                               static_cast<gpu::CuStream>(launch->stream.handle),
                               launch->deadline_ns);
  });
}

// For host plans only: the stream tells when an operation on it is complete.
cotune_status_t Progress(cotune_plan_t* plan, int64_t /*until_ns*/, cotune_error_t* error) {
  return Guard(error, [&]() -> Result<void> {
    if (auto failure = plan->group->Health()) return tl::unexpected(*failure);
    return Fail(COTUNE_UNSUPPORTED, "the stream tells when an operation is complete");
  });
}

void PlanDestroy(cotune_plan_t* plan) { delete plan; }

constexpr cotune_backend_api_t kApi = {
    .struct_size = sizeof(cotune_backend_api_t),
    .abi_minor = COTUNE_ABI_MINOR,
    .build_flags = sdk::BuildFlags(),
    .memory_kinds = 1u << COTUNE_MEMORY_CUDA,
    .name = kName,
    .version = kVersion,
    .create = Create,
    .destroy = Destroy,
    .get_extension = GetExtension,
    .list_choices = List,
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

}  // namespace cotune::nccl
