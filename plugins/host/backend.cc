#include "plugins/host/backend.h"

#include <fmt/format.h>

#include <charconv>
#include <memory>
#include <string_view>
#include <utility>

#include "plugins/host/choice_list.h"
#include "plugins/host/group.h"
#include "plugins/host/operation.h"
#include "plugins/host/sdk_names.h"
#include "plugins/sdk/abi_guard.h"

struct cotune_backend_t {
  const cotune_host_t* host;
  uint64_t slot_bytes;
};

struct cotune_group_t {
  std::unique_ptr<cotune::host::Group> group;
};

struct cotune_plan_t {
  cotune::host::Group* group;
  cotune::host::Operation operation;
  bool in_flight;
};

namespace cotune::host {
namespace {

constexpr char kName[] = "host";
constexpr char kVersion[] = "1.0.0";

template <class Body>
cotune_status_t Guard(cotune_error_t* error, Body body) {
  return sdk::Guard(kName, error, body);
}

// Every choice shares memory of the group's ranks on one host.
constexpr ProblemLimits kLimits{.memory_kind = COTUNE_MEMORY_HOST, .ranks_max = kMaxRanks};

Result<uint64_t> SlotBytes(const cotune_host_t& host) {
  if (host.setting == nullptr) return kDefaultSlotBytes;
  const char* text = host.setting(host.context, "slot_bytes");
  if (text == nullptr) return kDefaultSlotBytes;
  const std::string_view digits(text);
  uint64_t bytes = 0;
  const char* const end = digits.data() + digits.size();
  auto parsed = std::from_chars(digits.data(), end, bytes);
  constexpr uint64_t kPageBytes = 4096;
  if (parsed.ec == std::errc() && parsed.ptr + 1 == end && bytes <= kLargestSlotBytes) {
    // As sizes are written everywhere else.
    const int shift = *parsed.ptr == 'K' ? 10 : *parsed.ptr == 'M' ? 20 : -1;
    if (shift > 0) bytes <<= shift;
    if (shift > 0) ++parsed.ptr;
  }
  if (parsed.ec != std::errc() || parsed.ptr != end || bytes < kSmallestSlotBytes ||
      bytes > kLargestSlotBytes || bytes % (2 * kPageBytes) != 0) {
    return Fail(
        COTUNE_INVALID_ARGUMENT,
        fmt::format("setting host.slot_bytes is '{}'; give a multiple of {} from {} to {}",
                    digits.substr(0, 40), 2 * kPageBytes, kSmallestSlotBytes, kLargestSlotBytes));
  }
  return bytes;
}

cotune_status_t Create(const cotune_host_t* host, int32_t device, cotune_backend_t** backend,
                       cotune_error_t* error) {
  return Guard(error, [&]() -> Result<void> {
    if (!COTUNE_HAS_FIELD(cotune_host_t, host, setting)) {
      return Fail(COTUNE_INVALID_ARGUMENT, "the host's service table is older than version 1.0");
    }
    if (device >= 0) {
      return Fail(COTUNE_UNSUPPORTED,
                  fmt::format("device {}: this backend has none, use -1", device));
    }
    auto slot_bytes = SlotBytes(*host);
    if (!slot_bytes) return tl::unexpected(slot_bytes.error());
    *backend = new cotune_backend_t{host, *slot_bytes};
    return {};
  });
}

void Destroy(cotune_backend_t* backend) { delete backend; }

const void* GetExtension(const cotune_backend_t* /*backend*/, const char* /*id*/) {
  return nullptr;
}

cotune_choice_t ToAbi(const Choice& choice) {
  cotune_choice_t out{};
  out.struct_size = sizeof(out);
  out.cost_us = choice.cost_us;
  sdk::CopyText(choice.name, out.name);
  sdk::CopyText(choice.reason, out.reason);
  if (choice.reason.empty()) {
    out.status = COTUNE_OK;
    out.flags = COTUNE_CHOICE_REPRODUCIBLE;
    if (choice.is_default) out.flags |= COTUNE_CHOICE_DEFAULT;
    out.workspace_bytes = 0;  // slots belong to the group
  } else {
    out.status = COTUNE_UNSUPPORTED;
  }
  return out;
}

cotune_status_t List(const cotune_backend_t* backend, const cotune_problem_t* problem,
                     cotune_choice_t* first, uint32_t stride, uint32_t capacity, uint32_t* count,
                     cotune_error_t* error) {
  return Guard(error, [&]() -> Result<void> {
    auto checked = CheckProblem(*problem, kLimits);
    if (!checked) return tl::unexpected(checked.error());
    std::vector<cotune_choice_t> choices;
    for (const Choice& choice : ListChoices(*checked, backend->slot_bytes)) {
      choices.push_back(ToAbi(choice));
    }
    return sdk::WriteChoices(choices, first, stride, capacity, count);
  });
}

cotune_status_t GroupCreate(cotune_backend_t* backend, const cotune_group_params_t* params,
                            cotune_group_t** group, cotune_error_t* error) {
  return Guard(error, [&]() -> Result<void> {
    if (auto checked = sdk::CheckGroupParams(*params, kMaxRanks); !checked) return checked;
    if (params->device >= 0) {
      return Fail(COTUNE_UNSUPPORTED,
                  fmt::format("group '{}' is on device {}: this backend has none, use -1",
                              params->name, params->device));
    }
    auto joined = Group::Join(*backend->host, *params, backend->slot_bytes);
    if (!joined) return tl::unexpected(joined.error());
    *group = new cotune_group_t{std::move(*joined)};
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
                        const char* choice_name, int64_t /*deadline_ns*/, cotune_plan_t** plan,
                        cotune_error_t* error) {
  return Guard(error, [&]() -> Result<void> {
    Group& ranks = *group->group;
    if (auto failure = ranks.Health()) return tl::unexpected(*failure);
    auto checked = CheckProblem(*problem, kLimits);
    if (!checked) return tl::unexpected(checked.error());
    if (checked->world_size != ranks.world_size()) {
      return Fail(COTUNE_INVALID_ARGUMENT, fmt::format("a problem of {} ranks in a group of {}",
                                                       checked->world_size, ranks.world_size()));
    }
    auto schedule = ScheduleOf(*checked, choice_name, ranks.rank(), ranks.slot_bytes());
    if (!schedule) return tl::unexpected(schedule.error());
    if (schedule->reads_peers) {
      const std::string why = ranks.WhyPeersAreUnreadable();
      if (!why.empty()) return Fail(COTUNE_UNSUPPORTED, why);
    }
    *plan = new cotune_plan_t{&ranks, Operation(ranks, std::move(*schedule), choice_name), false};
    return {};
  });
}

cotune_status_t Launch(cotune_plan_t* plan, const cotune_launch_t* launch, cotune_error_t* error) {
  if (plan->group->HasFailed()) return Report(*plan->group->Health(), error);
  return Guard(error, [&]() -> Result<void> {
    if (launch->stream.kind != COTUNE_STREAM_HOST) {
      return Fail(
          COTUNE_INVALID_ARGUMENT,
          fmt::format("stream kind {}: host plans need a host stream", launch->stream.kind));
    }
    const Problem& problem = plan->operation.schedule().problem;
    auto fits = CheckBuffers(problem, plan->group->rank(), launch->send, launch->recv);
    if (!fits) return fits;
    if (plan->operation.schedule().reads_peers && problem.collective == Collective::kAllToAll &&
        launch->send == launch->recv && problem.count > 0) {
      return Fail(COTUNE_INVALID_ARGUMENT,
                  "send and receive buffers are the same, and the problem does not say in place");
    }
    if (!plan->group->BeginOperation(plan->operation.call())) {
      return Fail(COTUNE_INVALID_ARGUMENT,
                  "another operation of the group is in flight; call progress "
                  "until it is complete");
    }
    plan->in_flight = true;
    plan->operation.Start(launch->send, launch->recv, launch->deadline_ns);
    return {};
  });
}

cotune_status_t Progress(cotune_plan_t* plan, int64_t until_ns, cotune_error_t* error) {
  if (plan->group->HasFailed()) return Report(*plan->group->Health(), error);
  if (!plan->in_flight) {
    return Report({COTUNE_INVALID_ARGUMENT, 0, -1, "progress of a plan that was not launched"},
                  error);
  }
  switch (plan->operation.Run(until_ns)) {
    case Advance::kComplete:
      plan->in_flight = false;
      plan->group->EndOperation();
      return COTUNE_OK;
    case Advance::kInProgress:
      return COTUNE_IN_PROGRESS;
    case Advance::kFailed:
      break;
  }
  return Report(*plan->group->Health(), error);
}

void PlanDestroy(cotune_plan_t* plan) {
  if (plan == nullptr) return;
  // The peers cannot complete without this rank; better they learn it now than at the deadline.
  if (plan->in_flight) plan->group->Abort();
  delete plan;
}

constexpr cotune_backend_api_t kApi = {
    .struct_size = sizeof(cotune_backend_api_t),
    .abi_minor = COTUNE_ABI_MINOR,
    .build_flags = sdk::BuildFlags(),
    .memory_kinds = 1u << COTUNE_MEMORY_HOST,
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

}  // namespace cotune::host
