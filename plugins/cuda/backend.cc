#include "plugins/cuda/backend.h"

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <string_view>
#include <utility>

#include "gpu/driver/library_search.h"
#include "plugins/cuda/choices/choice_list.h"
#include "plugins/cuda/compile/kernel_library.h"
#include "plugins/cuda/group/group.h"
#include "plugins/cuda/group/plan.h"
#include "plugins/cuda/memory/descriptor_socket.h"
#include "plugins/cuda/memory/gpu.h"
#include "plugins/cuda/memory/peer_memory.h"
#include "plugins/sdk/abi_guard.h"
#include "plugins/sdk/problem.h"

struct cotune_backend_t {
  const cotune_host_t* host;
  std::unique_ptr<cotune::cuda::Gpu> gpu;
  std::unique_ptr<cotune::cuda::PeerMemory> memory;
  std::unique_ptr<cotune::cuda::KernelLibrary> kernels;
  // GPUs of other ranks may lack what this one has. All ranks have to list the same choices, so
  // this is what the ranks of all groups so far have together; the first group of a job is that of
  // all.
  std::atomic<bool> has_pdl;

  cotune::cuda::ChoiceLimits limits() const { return {.has_pdl = has_pdl}; }
};

struct cotune_group_t {
  cotune_backend_t* backend;
  std::unique_ptr<cotune::cuda::Group> group;
};

struct cotune_plan_t {
  cotune::cuda::Group* group;
  cotune::cuda::Plan plan;
};

namespace cotune::cuda {
namespace {

using sdk::Fail;
using sdk::Problem;
using sdk::Report;
using sdk::Result;

constexpr char kName[] = "cuda";
constexpr char kVersion[] = "1.2.0";
constexpr sdk::ProblemLimits kLimits{
    .memory_kind = COTUNE_MEMORY_CUDA, .ranks_max = kRanksMax, .takes_symmetric = true};

template <class Body>
cotune_status_t Guard(cotune_error_t* error, Body body) {
  return sdk::Guard(kName, error, body);
}

cotune_status_t Create(const cotune_host_t* host, int32_t device, cotune_backend_t** backend,
                       cotune_error_t* error) {
  return Guard(error, [&]() -> Result<void> {
    if (!COTUNE_HAS_FIELD(cotune_host_t, host, setting)) {
      return Fail(COTUNE_INVALID_ARGUMENT, "the host's service table is older than version 1.0");
    }
    auto gpu = Gpu::Open(device);
    if (!gpu) return tl::unexpected(gpu.error());
    const char* named =
        host->setting == nullptr ? nullptr : host->setting(host->context, "nvrtc_library");
    const auto environment = gpu::OwnEnvironment();
    auto nvrtc = Nvrtc::Open(named == nullptr ? "" : named, environment);
    if (!nvrtc) return tl::unexpected(nvrtc.error());
    const Gpu& opened = **gpu;  // stays where it is
    *backend = new cotune_backend_t{
        host, std::move(*gpu),
        std::make_unique<PeerMemory>(opened, DescriptorSocket::DefaultBases(environment)),
        std::make_unique<KernelLibrary>(opened, std::move(*nvrtc),
                                        KernelCache::DefaultFolder(environment), *host),
        HasProgrammaticLaunch(opened.capability())};
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

cotune_choice_t ToAbi(const Choice& choice) {
  cotune_choice_t out{};
  out.struct_size = sizeof(out);
  out.cost_us = choice.cost_us;
  sdk::CopyText(choice.name, out.name);
  sdk::CopyText(choice.reason, out.reason);
  out.status = choice.reason.empty() ? COTUNE_OK : COTUNE_UNSUPPORTED;
  if (choice.reason.empty()) {
    out.flags = COTUNE_CHOICE_REPRODUCIBLE | COTUNE_CHOICE_CAPTURABLE;
    if (choice.is_default) out.flags |= COTUNE_CHOICE_DEFAULT;
  }
  return out;
}

cotune_status_t List(const cotune_backend_t* backend, const cotune_problem_t* problem,
                     cotune_choice_t* first, uint32_t stride, uint32_t capacity, uint32_t* count,
                     cotune_error_t* error) {
  return Guard(error, [&]() -> Result<void> {
    const auto checked = sdk::CheckProblem(*problem, kLimits);
    if (!checked) return tl::unexpected(checked.error());
    std::vector<cotune_choice_t> choices;
    for (const Choice& choice : ListChoices(*checked, backend->limits())) {
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
                  fmt::format("group '{}' is on GPU {}, this backend on GPU {}", params->name,
                              params->device, backend->gpu->ordinal()));
    }
    auto joined =
        Group::Join(*backend->host, *params, *backend->gpu, *backend->memory, backend->limits());
    if (!joined) return tl::unexpected(joined.error());
    if (!(*joined)->limits().has_pdl) backend->has_pdl = false;
    *group = new cotune_group_t{backend, std::move(*joined)};
    return {};
  });
}

cotune_status_t GroupHealth(cotune_group_t* group, cotune_error_t* error) {
  return Guard(error, [&]() -> Result<void> {
    if (auto failure = group->group->Health()) return tl::unexpected(*failure);
    return {};
  });
}

void GroupAbort(cotune_group_t* group) { group->group->Abort(); }

void GroupDestroy(cotune_group_t* group) { delete group; }

cotune_status_t Prepare(cotune_group_t* group, const cotune_problem_t* problem,
                        const char* choice_name, int64_t deadline_ns, cotune_plan_t** plan,
                        cotune_error_t* error) {
  return Guard(error, [&]() -> Result<void> {
    Group& ranks = *group->group;
    if (auto failure = ranks.Health()) return tl::unexpected(*failure);
    const auto checked = sdk::CheckProblem(*problem, kLimits);
    if (!checked) return tl::unexpected(checked.error());
    if (checked->world_size != ranks.world_size()) {
      return Fail(COTUNE_INVALID_ARGUMENT, fmt::format("a problem of {} ranks in a group of {}",
                                                       checked->world_size, ranks.world_size()));
    }
    auto choice = FindChoice(*checked, choice_name, group->backend->limits());
    if (!choice) return tl::unexpected(choice.error());
    const bool needs_memory =
        choice->family != nullptr && choice->family->peer_buffers != PeerBuffers::kNone;
    if (needs_memory && checked->count > 0 && ranks.registered().is_empty()) {
      return Fail(COTUNE_UNSUPPORTED, "no memory is registered with this group");
    }
    gpu::CuFunction function = nullptr;
    if (!choice->is_copy) {
      const auto kernel = group->backend->kernels->Get(choice->spec, deadline_ns);
      if (!kernel) return tl::unexpected(kernel.error());
      function = *kernel;
    }
    *plan = new cotune_plan_t{&ranks, Plan(ranks, *checked, std::move(*choice), function)};
    return {};
  });
}

cotune_status_t Launch(cotune_plan_t* plan, const cotune_launch_t* launch, cotune_error_t* error) {
  if (plan->group->HasFailed()) {
    if (const auto failure = plan->group->Health()) return Report(*failure, error);
  }
  return Guard(error, [&] { return plan->plan.Launch(*launch); });
}

cotune_status_t Progress(cotune_plan_t* /*plan*/, int64_t /*until_ns*/, cotune_error_t* error) {
  return Report({COTUNE_INVALID_ARGUMENT, 0, -1,
                 "calls on a GPU are done when their stream is; there is nothing to progress"},
                error);
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

}  // namespace cotune::cuda
