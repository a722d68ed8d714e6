#include "plugins/loader/testing/probe_backend.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace cotune {
namespace {

// The table is constant and has no context, so the backend that create gives out is set here by the
// test that runs.
cotune_backend_t* next_backend = nullptr;

constexpr cotune_backend_api_t kTable = {
    .struct_size = sizeof(cotune_backend_api_t),
    .abi_minor = 0,
    .build_flags = 0,
    .memory_kinds = 1u << COTUNE_MEMORY_HOST,
    .name = "probe",
    .version = "2.1",
    .create =
        [](const cotune_host_t* host, int32_t, cotune_backend_t** backend, cotune_error_t*) {
          next_backend->host = host;
          *backend = next_backend;
          return cotune_status_t{COTUNE_OK};
        },
    .destroy = [](cotune_backend_t*) {},
    .get_extension = [](const cotune_backend_t* backend, const char* id) -> const void* {
      if (std::string_view(id) == "cotune.connections/1") return backend->connections;
      if (std::string_view(id) == "cotune.libraries/1") return backend->libraries;
      if (std::string_view(id) == "cotune.program/1") return backend->program;
      return std::string_view(id) == "cotune.memory/1" ? backend->memory : nullptr;
    },
    .list_choices =
        [](const cotune_backend_t* backend, const cotune_problem_t* problem, cotune_choice_t* first,
           uint32_t stride, uint32_t capacity, uint32_t* count, cotune_error_t* error) {
          next_backend->problem = *problem;
          ++next_backend->list_calls;
          if (backend->status != COTUNE_OK) return Answer(*backend, error);
          *count = static_cast<uint32_t>(backend->choices.size());
          for (uint32_t i = 0; i < std::min(capacity, *count); ++i) {
            std::memcpy(reinterpret_cast<char*>(first) + i * stride, &backend->choices[i],
                        sizeof(cotune_choice_t));
          }
          return cotune_status_t{COTUNE_OK};
        },
    .group_create =
        [](cotune_backend_t* backend, const cotune_group_params_t* params, cotune_group_t** group,
           cotune_error_t* error) {
          backend->job_ranks.assign(params->job_ranks, params->job_ranks + params->world_size);
          if (params->host_of_rank != nullptr) {
            backend->host_of_rank.assign(params->host_of_rank,
                                         params->host_of_rank + params->world_size);
          }
          *group = reinterpret_cast<cotune_group_t*>(backend);
          return Answer(*backend, error);
        },
    .group_health = [](cotune_group_t* group,
                       cotune_error_t* error) { return Answer(Of(group), error); },
    .group_abort = [](cotune_group_t* group) { Of(group).status = COTUNE_ABORTED; },
    .group_destroy = [](cotune_group_t*) {},
    .prepare =
        [](cotune_group_t* group, const cotune_problem_t* problem, const char*, int64_t,
           cotune_plan_t** plan, cotune_error_t* error) {
          Of(group).problem = *problem;
          *plan = reinterpret_cast<cotune_plan_t*>(group);
          return Answer(Of(group), error);
        },
    .launch =
        [](cotune_plan_t* plan, const cotune_launch_t* launch, cotune_error_t* error) {
          Of(plan).launch = *launch;
          return Answer(Of(plan), error);
        },
    .progress = [](cotune_plan_t* plan, int64_t,
                   cotune_error_t* error) { return Answer(Of(plan), error); },
    .plan_destroy = [](cotune_plan_t*) {},
};

}  // namespace

cotune_backend_api_t ProbeTable() {
  cotune_backend_api_t table = kTable;
  table.build_flags = OwnBuildFlags();
  return table;
}

cotune_backend_t& Of(cotune_group_t* group) { return *reinterpret_cast<cotune_backend_t*>(group); }
cotune_backend_t& Of(cotune_plan_t* plan) { return *reinterpret_cast<cotune_backend_t*>(plan); }

cotune_status_t Answer(const cotune_backend_t& backend, cotune_error_t* error) {
  std::strncpy(error->message, backend.message.c_str(), sizeof(error->message) - 1);
  error->failed_rank = backend.failed_rank;
  return backend.status;
}

cotune_choice_t Entry(const std::string& name, uint32_t flags) {
  cotune_choice_t entry{};
  entry.struct_size = sizeof(entry);
  entry.flags = flags;
  entry.cost_us = 2.5;
  entry.workspace_bytes = 64;
  name.copy(entry.name, sizeof(entry.name));
  return entry;
}

ProbeBackendTest::ProbeBackendTest() {
  next_backend = &probe_;
  problem_.cls.reduction = Reduction::kMax;
  problem_.cls.dtype = Dtype::kBf16;
  problem_.cls.world_size = 4;
  problem_.cls.ranks_per_node = 2;
  problem_.count = 6;
  problem_.topology_digest = 0xABCD;
  backend_ = AdoptBackend(&table_, services_.table(), -1, "test").value();
}

ProbeBackendTest::~ProbeBackendTest() { next_backend = nullptr; }

}  // namespace cotune
