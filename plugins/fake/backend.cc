#include "plugins/fake/backend.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "plugins/fake/failure.h"
#include "plugins/fake/operation.h"
#include "plugins/fake/reduction.h"
#include "plugins/fake/script.h"

using cotune::fake::Script;

struct cotune_backend_t {
  const cotune_host_t* host;
  Script script;
  std::atomic<int32_t> job_rank;  // known from the first group on, -1 before
};

struct cotune_group_t {
  const Script* script;
  cotune::fake::GroupState state;
  std::map<std::string, uint64_t> launches;  // by choice
  std::mutex mutex;                          // of what follows
  std::optional<cotune::fake::Failure> failure;
};

struct cotune_plan_t {
  cotune_group_t* group;
  cotune_problem_t problem;
  std::string choice;
  int64_t least_ns;
  std::optional<cotune::fake::Operation> operation;
};

namespace cotune::fake {
namespace {

constexpr char kName[] = "fake";
constexpr char kVersion[] = "1.0.0";
constexpr int32_t kWorldSizeMax = 128;

cotune_status_t Report(const Failure& failure, cotune_error_t* error) {
  if (error == nullptr) return failure.status;
  error->native_code = 0;
  error->failed_rank = failure.failed_rank;
  const std::string text = "fake: " + failure.text;
  const size_t size = std::min(text.size(), sizeof(error->message) - 1);
  std::memcpy(error->message, text.data(), size);
  error->message[size] = '\0';
  return failure.status;
}

// Runs a body that gives a status or a failure; no exception crosses the ABI.
template <typename Body>
cotune_status_t Guard(cotune_error_t* error, const Body& body) {
  try {
    const Result<cotune_status_t> result = body();
    return result ? *result : Report(result.error(), error);
  } catch (const std::bad_alloc&) {
    return Report({COTUNE_OUT_OF_RESOURCES, "out of memory"}, error);
  } catch (const std::exception& e) {
    return Report({COTUNE_INTERNAL, e.what()}, error);
  }
}

cotune_status_t Create(const cotune_host_t* host, int32_t device, cotune_backend_t** backend,
                       cotune_error_t* error) {
  return Guard(error, [&]() -> Result<cotune_status_t> {
    if (!COTUNE_HAS_FIELD(cotune_host_t, host, setting)) {
      return Fail(COTUNE_INVALID_ARGUMENT, "the host's table of services is too small");
    }
    if (device >= 0) return Fail(COTUNE_UNSUPPORTED, "it has no devices, use -1");
    const char* text = host->setting(host->context, "script");
    auto script = ParseScript(text == nullptr ? "" : text);
    if (!script) return tl::make_unexpected(script.error());
    if (script->create_status != COTUNE_OK) {
      return Fail(script->create_status, script->create_reason);
    }
    *backend = new cotune_backend_t{host, std::move(*script), -1};
    return COTUNE_OK;
  });
}

void Destroy(cotune_backend_t* backend) { delete backend; }

const void* GetExtension(const cotune_backend_t* /*backend*/, const char* /*id*/) {
  return nullptr;
}

Result<void> CheckProblem(const cotune_problem_t& problem) {
  constexpr uint32_t kMustKnow = 0xFFFF0000u;
  if (problem.memory_kind != COTUNE_MEMORY_HOST)
    return Fail(COTUNE_UNSUPPORTED, "host memory only");
  if ((problem.flags & kMustKnow) != 0) {
    return Fail(COTUNE_UNSUPPORTED, fmt::format("unknown flags {:#x}", problem.flags));
  }
  if (problem.collective < COTUNE_ALL_REDUCE || problem.collective > COTUNE_BROADCAST) {
    return Fail(COTUNE_UNSUPPORTED, fmt::format("unknown collective {}", problem.collective));
  }
  if (problem.reduction > COTUNE_AVERAGE) {
    return Fail(COTUNE_UNSUPPORTED, fmt::format("unknown reduction {}", problem.reduction));
  }
  if (ElementBytes(problem.dtype) == 0) return Fail(COTUNE_UNSUPPORTED, "unknown element type");
  if (problem.world_size < 1 || problem.world_size > kWorldSizeMax) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("1 to {} ranks, not {}", kWorldSizeMax, problem.world_size));
  }
  return {};
}

bool Runs(const ScriptedChoice& choice, uint32_t collective) {
  return (choice.collectives & (1u << collective)) != 0;
}

cotune_choice_t ToAbi(const ScriptedChoice& choice, uint64_t bytes) {
  cotune_choice_t entry{};
  entry.struct_size = sizeof(entry);
  entry.status = choice.refusal.empty() ? COTUNE_OK : COTUNE_UNSUPPORTED;
  entry.flags = COTUNE_CHOICE_REPRODUCIBLE;
  if (choice.is_default) entry.flags |= COTUNE_CHOICE_DEFAULT;
  entry.cost_us = choice.has_model ? choice.model.At(bytes) : -1;
  choice.name.copy(entry.name, sizeof(entry.name) - 1);
  choice.refusal.copy(entry.reason, sizeof(entry.reason) - 1);
  return entry;
}

// The entries of the list, in the script's order.
Result<std::vector<cotune_choice_t>> Entries(const cotune_backend_t& backend,
                                             const cotune_problem_t& problem) {
  if (auto checked = CheckProblem(problem); !checked) return tl::make_unexpected(checked.error());
  const Script& script = backend.script;
  if ((script.refused_collectives & (1u << problem.collective)) != 0) {
    return Fail(COTUNE_UNSUPPORTED, script.refuse_all_reason);
  }
  std::vector<cotune_choice_t> entries;
  for (const ScriptedChoice& choice : script.choices) {
    if (Runs(choice, problem.collective)) entries.push_back(ToAbi(choice, problem.bytes));
  }
  if (entries.empty()) return Fail(COTUNE_UNSUPPORTED, "the script has no choice for it");
  if (script.Find(FaultKind::kDivergent, "", backend.job_rank, 0) != nullptr) entries.pop_back();
  return entries;
}

cotune_status_t ListChoices(const cotune_backend_t* backend, const cotune_problem_t* problem,
                            cotune_choice_t* first, uint32_t stride, uint32_t capacity,
                            uint32_t* count, cotune_error_t* error) {
  return Guard(error, [&]() -> Result<cotune_status_t> {
    const auto entries = Entries(*backend, *problem);
    if (!entries) return tl::make_unexpected(entries.error());
    const size_t entry_bytes = std::min<size_t>(stride, sizeof(cotune_choice_t));
    for (size_t i = 0; i < std::min<size_t>(capacity, entries->size()); ++i) {
      std::memcpy(reinterpret_cast<char*>(first) + i * stride, &(*entries)[i], entry_bytes);
    }
    *count = static_cast<uint32_t>(entries->size());
    return COTUNE_OK;
  });
}

cotune_status_t GroupCreate(cotune_backend_t* backend, const cotune_group_params_t* params,
                            cotune_group_t** group, cotune_error_t* error) {
  return Guard(error, [&]() -> Result<cotune_status_t> {
    auto made = std::make_unique<cotune_group_t>();
    made->script = &backend->script;
    made->state.host = backend->host;
    made->state.name = params->name;
    made->state.rank = params->rank;
    made->state.job_ranks.assign(params->job_ranks, params->job_ranks + params->world_size);
    const int32_t job_rank = made->state.job_ranks[params->rank];
    backend->job_rank = job_rank;
    if (backend->script.Find(FaultKind::kFailGroup, "", job_rank, 0) != nullptr) {
      return Fail(COTUNE_INTERNAL, "the script lets group_create fail");
    }
    if (auto met = Meet(made->state, params->deadline_ns); !met) {
      return tl::make_unexpected(met.error());
    }
    *group = made.release();
    return COTUNE_OK;
  });
}

// What made the group unusable, if anything did.
Result<void> Health(cotune_group_t& group) {
  if (group.state.aborted) return Fail(COTUNE_ABORTED, "the group was aborted");
  const std::lock_guard<std::mutex> lock(group.mutex);
  if (group.failure) return tl::make_unexpected(*group.failure);
  return {};
}

// Keeps the first failure of the group and passes it on.
tl::unexpected<Failure> Break(cotune_group_t& group, Failure failure) {
  const std::lock_guard<std::mutex> lock(group.mutex);
  if (!group.failure) group.failure = failure;
  return tl::make_unexpected(std::move(failure));
}

cotune_status_t GroupHealth(cotune_group_t* group, cotune_error_t* error) {
  return Guard(error, [&]() -> Result<cotune_status_t> {
    return Health(*group).map([] { return cotune_status_t{COTUNE_OK}; });
  });
}

void GroupAbort(cotune_group_t* group) { group->state.aborted = true; }

void GroupDestroy(cotune_group_t* group) { delete group; }

Result<void> DelayPrepare(const cotune_group_t& group, int64_t delay_us, int64_t deadline_ns) {
  const int64_t end_ns = group.state.now_ns() + delay_us * 1000;
  while (group.state.now_ns() < end_ns) {
    if (group.state.aborted) return Fail(COTUNE_ABORTED, "the group was aborted");
    if (group.state.now_ns() >= deadline_ns) {
      return Fail(COTUNE_DEADLINE_EXCEEDED, "the script delays prepare beyond its deadline");
    }
    PauseUntil(group.state, std::min(end_ns, deadline_ns));
  }
  return {};
}

cotune_status_t Prepare(cotune_group_t* group, const cotune_problem_t* problem,
                        const char* choice_name, int64_t deadline_ns, cotune_plan_t** plan,
                        cotune_error_t* error) {
  return Guard(error, [&]() -> Result<cotune_status_t> {
    if (auto health = Health(*group); !health) return tl::make_unexpected(health.error());
    if (auto checked = CheckProblem(*problem); !checked) {
      return tl::make_unexpected(checked.error());
    }
    const Script& script = *group->script;
    const auto choice =
        std::find_if(script.choices.begin(), script.choices.end(), [&](const ScriptedChoice& each) {
          return each.name == choice_name && each.refusal.empty() &&
                 Runs(each, problem->collective);
        });
    if (choice == script.choices.end()) {
      return Fail(COTUNE_INVALID_ARGUMENT, fmt::format("no choice '{}' for this", choice_name));
    }
    const int32_t job_rank = group->state.job_ranks[group->state.rank];
    if (const Fault* delay = script.Find(FaultKind::kDelayPrepare, choice_name, job_rank, 0)) {
      if (auto delayed = DelayPrepare(*group, delay->delay_us, deadline_ns); !delayed) {
        return tl::make_unexpected(delayed.error());
      }
    }
    if (script.Find(FaultKind::kFailPrepare, choice_name, job_rank, 0) != nullptr) {
      return Fail(COTUNE_INTERNAL, fmt::format("the script lets prepare of {} fail", choice_name));
    }
    const auto least_ns = static_cast<int64_t>(choice->cost.At(problem->bytes) * 1000);
    *plan = new cotune_plan_t{group, *problem, choice_name, least_ns, std::nullopt};
    return COTUNE_OK;
  });
}

cotune_status_t Launch(cotune_plan_t* plan, const cotune_launch_t* launch, cotune_error_t* error) {
  return Guard(error, [&]() -> Result<cotune_status_t> {
    cotune_group_t& group = *plan->group;
    if (auto health = Health(group); !health) return tl::make_unexpected(health.error());
    if (plan->operation) return Fail(COTUNE_INVALID_ARGUMENT, "an operation is running already");
    const int32_t job_rank = group.state.job_ranks[group.state.rank];
    const uint64_t call = ++group.launches[plan->choice];
    const auto hits = [&](FaultKind kind) {
      return group.script->Find(kind, plan->choice, job_rank, call) != nullptr;
    };
    if (hits(FaultKind::kFailLaunch)) {
      return Break(group, {COTUNE_INTERNAL, fmt::format("the script lets launch {} of {} fail",
                                                        call, plan->choice)});
    }
    const Misbehaviour misbehaviour{plan->least_ns, hits(FaultKind::kHang), hits(FaultKind::kWrong),
                                    hits(FaultKind::kOverrun)};
    plan->operation.emplace(group.state, plan->problem, *launch, misbehaviour);
    return COTUNE_OK;
  });
}

cotune_status_t Progress(cotune_plan_t* plan, int64_t until_ns, cotune_error_t* error) {
  return Guard(error, [&]() -> Result<cotune_status_t> {
    if (!plan->operation) return Fail(COTUNE_INVALID_ARGUMENT, "nothing was launched");
    const Result<bool> done = plan->operation->Advance(until_ns);
    if (!done || *done) plan->operation.reset();
    if (!done) return Break(*plan->group, done.error());
    return *done ? COTUNE_OK : COTUNE_IN_PROGRESS;
  });
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
    .name = kName,
    .version = kVersion,
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

const cotune_backend_api_t* FakeBackendApi() { return &kApi; }

}  // namespace cotune::fake
