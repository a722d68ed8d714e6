#include "plugins/fake/fake_backend.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
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
  std::atomic<int32_t> rank;  // in the last group that was made, -1 before
  // Calls so far that each breach of the script is about.
  std::vector<std::unique_ptr<std::atomic<int64_t>>> calls;
};

struct cotune_group_t {
  cotune_backend_t* backend;
  const Script* script;
  cotune::fake::GroupState state;
  std::mutex mutex;  // of what follows
  std::optional<cotune::fake::Failure> failure;
};

struct cotune_plan_t {
  cotune_group_t* group;
  cotune_problem_t problem;
  const cotune::fake::ScriptedChoice* choice;
  int64_t calls;
  std::optional<cotune::fake::Operation> operation;
};

namespace cotune::fake {
namespace {

constexpr char kName[] = "fake";
constexpr char kVersion[] = "1";
constexpr int32_t kWorldSizeMax = 128;
constexpr int32_t kWarning = 2;  // of a log's severities

cotune_status_t Report(const Failure& failure, cotune_error_t* error) {
  if (error == nullptr) return failure.status;
  error->native_code = 0;
  error->failed_rank = failure.failed_rank;
  const size_t size = failure.text.copy(error->message, sizeof(error->message) - 1);
  error->message[size] = '\0';
  return failure.status;
}

// Calls itself until its stack has run over.
__attribute__((noinline)) int64_t OverflowStack(const volatile int64_t* outer) {
  if (*outer < 0) return 0;  // never, which the compiler does not know
  volatile int64_t inner[512];
  inner[0] = *outer + 1;
  return OverflowStack(inner) + inner[0];
}

// Breaks the contract of the ABI where the script says so. True: progress is never done.
bool Misbehave(cotune_backend_t& backend, std::string_view function, std::string_view choice = "") {
  bool is_never_done = false;
  for (size_t i = 0; i < backend.script.breaches.size(); ++i) {
    const Breach& breach = backend.script.breaches[i];
    if (breach.function != function || (breach.on >= 0 && breach.on != backend.rank)) continue;
    if (!breach.choice.empty() && breach.choice != choice) continue;
    const int64_t count = ++*backend.calls[i];
    if (count < breach.at) continue;
    const bool waits = breach.how == How::kNeverReturns || breach.how == How::kNeverDone;
    if (waits && count == breach.at) {
      const std::string text = fmt::format("scripted: {} begins to wait for ever", function);
      backend.host->log(backend.host->context, kWarning, text.c_str());
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
  std::unique_ptr<cotune_backend_t> made;
  const cotune_status_t status = Guard(error, [&]() -> Result<cotune_status_t> {
    if (!COTUNE_HAS_FIELD(cotune_host_t, host, setting)) {
      return Fail(COTUNE_INVALID_ARGUMENT, "the host's table of services is too small");
    }
    if (device >= 0) return Fail(COTUNE_UNSUPPORTED, "it has no devices, use -1");
    const char* text = host->setting(host->context, "script");
    Script script = ParseScript(text == nullptr ? "choice plain default" : text);
    if (!script.mistake.empty()) {
      return Fail(COTUNE_INVALID_ARGUMENT, "setting fake.script, " + script.mistake);
    }
    if (!script.create_fails.empty()) return Fail(COTUNE_INTERNAL, script.create_fails);
    if (!script.create_unsupported.empty()) {
      return Fail(COTUNE_UNSUPPORTED, script.create_unsupported);
    }
    made.reset(new cotune_backend_t{host, std::move(script), -1, {}});
    for (size_t i = 0; i < made->script.breaches.size(); ++i) {
      made->calls.push_back(std::make_unique<std::atomic<int64_t>>(0));
    }
    return COTUNE_OK;
  });
  if (made == nullptr) return status;
  Misbehave(*made, "create");
  *backend = made.release();
  return status;
}

void Destroy(cotune_backend_t* backend) {
  // Freed also where it throws.
  const std::unique_ptr<cotune_backend_t> owned(backend);
  if (backend != nullptr) Misbehave(*backend, "destroy");
}

const void* GetExtension(const cotune_backend_t* backend, const char* /*id*/) {
  Misbehave(*const_cast<cotune_backend_t*>(backend), "get_extension");
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

double CostUs(const ScriptedChoice& choice, uint64_t bytes) {
  return choice.cost_us + choice.cost_per_kib_us * static_cast<double>(bytes) / 1024;
}

// Empty when the choice can run it.
std::string WhyRefused(const ScriptedChoice& choice, const cotune_problem_t& problem) {
  if (!choice.refuse.empty()) return choice.refuse;
  if ((choice.collectives & (1u << problem.collective)) == 0) return "not for this collective";
  if (problem.bytes < choice.bytes_min)
    return fmt::format("needs at least {} bytes", choice.bytes_min);
  if (problem.bytes > choice.bytes_max)
    return fmt::format("takes at most {} bytes", choice.bytes_max);
  return "";
}

cotune_choice_t ToAbi(const ScriptedChoice& choice, const cotune_problem_t& problem) {
  const std::string refused = WhyRefused(choice, problem);
  cotune_choice_t entry{};
  entry.struct_size = sizeof(entry);
  entry.status = refused.empty() ? COTUNE_OK : COTUNE_UNSUPPORTED;
  entry.flags = COTUNE_CHOICE_REPRODUCIBLE;
  if (choice.is_default) entry.flags |= COTUNE_CHOICE_DEFAULT;
  if (choice.collective_prepare) entry.flags |= COTUNE_CHOICE_COLLECTIVE_PREPARE;
  entry.cost_us = choice.model_us;
  choice.name.copy(entry.name, sizeof(entry.name) - 1);
  refused.copy(entry.reason, sizeof(entry.reason) - 1);
  return entry;
}

// The entries of the list, in the script's order.
Result<std::vector<cotune_choice_t>> Entries(const cotune_backend_t& backend,
                                             const cotune_problem_t& problem) {
  if (auto checked = CheckProblem(problem); !checked) return tl::make_unexpected(checked.error());
  if (!backend.script.refuse_all.empty()) {
    return Fail(COTUNE_UNSUPPORTED, backend.script.refuse_all);
  }
  const int32_t rank = backend.rank;
  std::vector<cotune_choice_t> entries;
  for (const ScriptedChoice& choice : backend.script.choices) {
    const bool is_missing = choice.missing_on >= 0 && choice.missing_on == rank;
    if (!is_missing) entries.push_back(ToAbi(choice, problem));
  }
  return entries;
}

cotune_status_t ListChoices(const cotune_backend_t* backend, const cotune_problem_t* problem,
                            cotune_choice_t* first, uint32_t stride, uint32_t capacity,
                            uint32_t* count, cotune_error_t* error) {
  // Only the counters of the script change.
  Misbehave(*const_cast<cotune_backend_t*>(backend), "list_choices");
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
  backend->rank = params->rank;
  Misbehave(*backend, "group_create");
  return Guard(error, [&]() -> Result<cotune_status_t> {
    auto made = std::make_unique<cotune_group_t>();
    made->backend = backend;
    made->script = &backend->script;
    made->state.host = backend->host;
    made->state.name = params->name;
    made->state.rank = params->rank;
    made->state.job_ranks.assign(params->job_ranks, params->job_ranks + params->world_size);
    if (backend->script.group_fails_on == params->rank) {
      return Fail(COTUNE_INTERNAL, "scripted: group_create fails");
    }
    if (auto met = Meet(made->state, "joined the group", params->deadline_ns); !met) {
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
  Misbehave(*group->backend, "group_health");
  return Guard(error, [&]() -> Result<cotune_status_t> {
    return Health(*group).map([] { return cotune_status_t{COTUNE_OK}; });
  });
}

void GroupAbort(cotune_group_t* group) {
  Misbehave(*group->backend, "group_abort");
  Abort(group->state);
}

void GroupDestroy(cotune_group_t* group) {
  const std::unique_ptr<cotune_group_t> owned(group);
  if (group != nullptr) Misbehave(*group->backend, "group_destroy");
}

Result<void> DelayPrepare(const cotune_group_t& group, const ScriptedChoice& choice,
                          int64_t deadline_ns) {
  if (choice.prepare_delay_on >= 0 && choice.prepare_delay_on != group.state.rank) return {};
  const int64_t end_ns = group.state.now_ns() + choice.prepare_delay_ms * 1'000'000;
  while (group.state.now_ns() < end_ns) {
    if (group.state.aborted) return Fail(COTUNE_ABORTED, "the group was aborted");
    if (group.state.now_ns() >= deadline_ns) {
      return Fail(COTUNE_DEADLINE_EXCEEDED, "scripted: prepare takes longer than its deadline");
    }
    PauseUntil(group.state, std::min(end_ns, deadline_ns));
  }
  return {};
}

cotune_status_t Prepare(cotune_group_t* group, const cotune_problem_t* problem,
                        const char* choice_name, int64_t deadline_ns, cotune_plan_t** plan,
                        cotune_error_t* error) {
  Misbehave(*group->backend, "prepare", choice_name);
  return Guard(error, [&]() -> Result<cotune_status_t> {
    if (auto health = Health(*group); !health) return tl::make_unexpected(health.error());
    if (auto checked = CheckProblem(*problem); !checked) {
      return tl::make_unexpected(checked.error());
    }
    const auto& choices = group->script->choices;
    const auto choice = std::find_if(choices.begin(), choices.end(),
                                     [&](const auto& each) { return each.name == choice_name; });
    if (choice == choices.end()) {
      return Fail(COTUNE_UNSUPPORTED, fmt::format("there is no choice {}", choice_name));
    }
    if (const std::string refused = WhyRefused(*choice, *problem); !refused.empty()) {
      return Fail(COTUNE_UNSUPPORTED, refused);
    }
    if (auto delayed = DelayPrepare(*group, *choice, deadline_ns); !delayed) {
      return tl::make_unexpected(delayed.error());
    }
    if (group->state.name.find(choice->prepare_only_in) != std::string::npos) {
      if (choice->prepare_fails_on == group->state.rank) {
        return Fail(COTUNE_INTERNAL, "scripted: prepare fails");
      }
      if (choice->prepare_refused_on == group->state.rank) {
        return Fail(COTUNE_UNSUPPORTED, "scripted: prepare refuses");
      }
    }
    if (choice->collective_prepare) {
      if (auto met = Meet(group->state, "prepared " + choice->name, deadline_ns); !met) {
        return tl::make_unexpected(met.error());
      }
    }
    *plan = new cotune_plan_t{group, *problem, &*choice, 0, std::nullopt};
    return COTUNE_OK;
  });
}

cotune_status_t Launch(cotune_plan_t* plan, const cotune_launch_t* launch, cotune_error_t* error) {
  Misbehave(*plan->group->backend, "launch", plan->choice->name);
  return Guard(error, [&]() -> Result<cotune_status_t> {
    cotune_group_t& group = *plan->group;
    if (auto health = Health(group); !health) return tl::make_unexpected(health.error());
    if (plan->operation) return Fail(COTUNE_INVALID_ARGUMENT, "an operation is running already");
    const ScriptedChoice& choice = *plan->choice;
    const int32_t rank = group.state.rank;
    if (++plan->calls >= choice.launch_fails_at && choice.launch_fails_on == rank) {
      return Break(group, {COTUNE_INTERNAL, "scripted: launch fails"});
    }
    const Misbehaviour misbehaviour{
        static_cast<int64_t>(CostUs(choice, plan->problem.bytes) * 1000), choice.hangs_on == rank,
        choice.wrong_on == rank, choice.overruns_on == rank};
    plan->operation.emplace(group.state, plan->problem, *launch, misbehaviour);
    return COTUNE_OK;
  });
}

cotune_status_t Progress(cotune_plan_t* plan, int64_t until_ns, cotune_error_t* error) {
  if (Misbehave(*plan->group->backend, "progress", plan->choice->name)) return COTUNE_IN_PROGRESS;
  return Guard(error, [&]() -> Result<cotune_status_t> {
    if (!plan->operation) return Fail(COTUNE_INVALID_ARGUMENT, "nothing was launched");
    const Result<bool> done = plan->operation->Advance(until_ns);
    if (!done || *done) plan->operation.reset();
    if (!done) return Break(*plan->group, done.error());
    return *done ? COTUNE_OK : COTUNE_IN_PROGRESS;
  });
}

void PlanDestroy(cotune_plan_t* plan) {
  const std::unique_ptr<cotune_plan_t> owned(plan);
  if (plan != nullptr) Misbehave(*plan->group->backend, "plan_destroy", plan->choice->name);
}

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

const cotune_backend_api_t* BackendApi() { return &kApi; }

}  // namespace cotune::fake
