// Groups: made from options and the environment, split, destroyed.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "integration/capi/caller_functions.h"
#include "integration/capi/caller_store.h"
#include "integration/capi/group_state.h"
#include "integration/capi/read_options.h"
#include "integration/database_path.h"
#include "integration/plugin_scan.h"
#include "integration/settings/settings.h"

namespace cotune::capi {
namespace {

constexpr int64_t kJoinTimeoutNs = 60'000'000'000;
constexpr int64_t kCallTimeoutNs = 30'000'000'000;
constexpr size_t kSplitNameMax = 100;

std::string TextOr(const char* text, const std::string& fallback) {
  return text == nullptr ? fallback : text;
}

std::vector<std::string> SplitAt(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// How often this process was asked for a group whose id the caller did not choose, and which ranks
// of other processes may be in.
std::atomic<uint64_t> unnamed_groups = 0;
// Groups that this process has alone, which no other rank counts.
std::atomic<uint64_t> private_groups = 0;

// Counts a group without an id of its own, before anything can fail: all ranks count alike, because
// they ask for their groups in the same order, and one that fails on some ranks was asked for on
// all. Its number, from 1; 0: it has an id, or is of this process alone.
uint64_t CountUnnamed(const cotune_group_options& options) {
  const bool has_launcher_shape = options.world_size == 0 && options.rank == 0;
  const bool meets_by_store = options.store != nullptr && options.world_size > 1;
  const bool is_unnamed = options.job_id == nullptr && (has_launcher_shape || meets_by_store);
  return is_unnamed ? ++unnamed_groups : 0;
}

// The id of the group with this number, `base` being that of this process's job. Each group has
// another, or ranks that come early would meet the group before, which may still be there.
std::string JobIdOf(const std::string& base, uint64_t number) {
  return number == 1 ? base : fmt::format("{}/{}", base, number);
}

// `number`: of CountUnnamed.
Result<LaunchContext> ContextOf(const cotune_group_options& options, uint64_t number,
                                const Environment& environment) {
  if (options.world_size == 0 && options.rank == 0) {
    COTUNE_TRY(std::optional<LaunchContext> found, DetectLaunchContext(environment, getppid()));
    LaunchContext context;
    context.launcher = "none";
    context.job_id = fmt::format("alone-{}", getpid());
    if (found) context = *found;
    context.job_id = options.job_id == nullptr ? JobIdOf(context.job_id, number) : options.job_id;
    context.socket_path = TextOr(options.socket_path, context.socket_path);
    return context;
  }
  if (options.world_size < 1 || options.rank < 0 || options.rank >= options.world_size) {
    return Fail(
        ErrorCode::kUsage,
        fmt::format("rank {} is not a rank of world size {}", options.rank, options.world_size),
        "cotune_group_options", "", "number the ranks from 0 to world_size - 1");
  }
  if (options.job_id == nullptr && options.socket_path == nullptr && options.store == nullptr &&
      options.world_size > 1) {
    return Fail(ErrorCode::kUsage, "neither job_id nor socket_path nor store is given",
                "cotune_group_options", "the ranks would not find each other",
                "give all ranks of the job the same job_id");
  }
  LaunchContext context;
  context.launcher = "options";
  context.rank = context.local_rank = options.rank;
  context.world_size = context.local_size = options.world_size;
  context.socket_path = TextOr(options.socket_path, "");
  if (options.job_id != nullptr) {
    context.job_id = options.job_id;
  } else if (number > 0) {
    context.job_id = JobIdOf("group", number);
  } else if (!context.socket_path.empty()) {
    context.job_id = context.socket_path;
  } else {
    context.job_id = fmt::format("private-{}-{}", getpid(), ++private_groups);
  }
  return context;
}

// The memory of a group is where the caller has its operands, which no setting can know.
Status CheckNoMemory(const std::map<std::string, std::string>& settings,
                     const std::string& origin) {
  if (!settings.contains("memory")) return {};
  return Fail(ErrorCode::kUsage, "the setting memory does not count for a group", origin,
              "it is the memory that `cotune tune` measures; the operands of a group's calls are "
              "where the caller has them",
              "leave it out, and give the option memory of the group");
}

// `values`: all settings as they were resolved.
Result<JobOptions> JobOptionsOf(const cotune_group_options& given, uint64_t number,
                                const std::shared_ptr<CallerLog>& log, SettingValues& values) {
  Environment environment = ProcessEnvironment();
  JobOptions options;
  COTUNE_TRY(LaunchContext context, ContextOf(given, number, environment));
  options.context = std::move(context);
  options.missing_ranks_hint = LeftOverText(options.context);
  if (given.store != nullptr) {
    COTUNE_TRY(auto store, MakeCallerStore(*given.store, options.context.job_id));
    options.store = std::move(store);
  }
  SettingSources sources;
  sources.environment = environment;
  sources.flags_origin = "option settings of the group";
  COTUNE_TRY(auto own_settings,
             ParseSettingLines(TextOr(given.settings, ""), sources.flags_origin));
  COTUNE_RETURN_IF_ERROR(CheckNoMemory(own_settings, sources.flags_origin));
  sources.flags = std::move(own_settings);
  COTUNE_TRY(const ResolvedSettings settings, ResolveSettings(sources));
  if (options.context.rank == 0) {
    for (const std::string& warning : settings.warnings)
      EmitLine(*log, Severity::kWarning, warning);
  }
  if (given.memory != COTUNE_GROUP_MEMORY_HOST && given.memory != COTUNE_GROUP_MEMORY_CUDA) {
    return Fail(ErrorCode::kUsage, fmt::format("there is no memory {}", given.memory),
                "cotune_group_options", "", "use COTUNE_GROUP_MEMORY_HOST or _CUDA");
  }
  options.memory = given.memory == COTUNE_GROUP_MEMORY_CUDA ? MemoryKind::kCuda : MemoryKind::kHost;
  values = settings.values;
  values.warm_timeout_ns = std::max(values.warm_timeout_ns, given.join_timeout_ns);
  options.force_origin = settings.origins.at("force_choice");
  if (given.force != nullptr) {
    options.force_origin = "option force of the group";
    COTUNE_RETURN_IF_ERROR(AssignForceOfGroup(given.force, options.force_origin, values));
  }
  options.settings = values;
  options.catalogue.settings = settings.backend_values;
  options.catalogue.setting_origins = settings.backend_origins;
  options.catalogue.check_calls = settings.values.check_calls;
  const std::string plugin_path = TextOr(given.plugin_path, settings.values.plugin_path);
  environment.erase("COTUNE_PLUGIN_PATH");
  if (!plugin_path.empty()) environment["COTUNE_PLUGIN_PATH"] = plugin_path;
  options.catalogue.plugin_search_path = DefaultPluginSearchPath(environment);
  options.catalogue.backends = SplitAt(TextOr(given.backends, ""), ',');
  if (given.functions != nullptr) {
    COTUNE_TRY(auto functions, MakeFunctionsBackend(*given.functions));
    options.catalogue.own_backends.push_back(std::move(functions));
  }
  options.rendezvous_timeout_ns =
      given.join_timeout_ns > 0 ? given.join_timeout_ns : kJoinTimeoutNs;
  options.observer = log.get();
  options.lines = log.get();
  options.on_stuck = [log, exits = settings.values.exit_when_stuck](const Error& error) {
    EmitLine(*log, Severity::kError, error.ToText());
    // Without destructors: they would wait for the thread that is stuck.
    if (exits) _exit(ExitCode(error.code));
  };
  return options;
}

Status CheckTimeouts(const cotune_group_options& options) {
  const char* const name = "cotune_group_options";
  Status join = CheckDuration(options.join_timeout_ns, "join_timeout_ns", name, "60 s");
  return join ? CheckDuration(options.call_timeout_ns, "call_timeout_ns", name, "30 s") : join;
}

// As in cotune_group.
struct DatabasePlan {
  Result<std::string> place;
  bool is_named = false;
  bool is_loaded = true;
};

// The group of a job that has joined, with the table that it begins with.
Result<std::unique_ptr<cotune_group>> GroupOf(std::shared_ptr<JobNode> node,
                                              int64_t call_timeout_ns, DatabasePlan database) {
  auto group = std::make_unique<cotune_group>();
  const bool is_split = node->parent != nullptr;
  group->node = std::move(node);
  // The caller's log takes lines only.
  group->dispatcher = std::make_unique<Dispatcher>(group->job(), /*marks_calls=*/false);
  group->call_timeout_ns = call_timeout_ns;
  group->database_place = std::move(database.place);
  group->names_database = database.is_named;
  group->loads_database = database.is_loaded;
  COTUNE_RETURN_IF_ERROR(LoadAtCreation(*group, is_split));
  return group;
}

// Ranks that count their groups without an id differently never meet: an error of the rendezvous
// says which one this process was at.
Error WithNumber(Error error, uint64_t number, const LaunchContext& context) {
  const bool is_of_rendezvous =
      error.code == ErrorCode::kRankLost || error.code == ErrorCode::kDeadline;
  if (number == 0 || context.world_size == 1 || !is_of_rendezvous) return error;
  error.next_step += fmt::format(
      "{}this process asked for a group without a job_id for time {}, as \"{}\": every rank must "
      "have asked as often, or give a job_id",
      error.next_step.empty() ? "" : "; ", number, context.job_id);
  return error;
}

// The caller counts on its functions, and would not look for the reason.
void WarnOfLeftOut(const JobOptions& options, const Job& job, CallerLog& log) {
  for (const std::shared_ptr<Backend>& own : options.catalogue.own_backends) {
    for (const PluginReport& report : job.plugin_reports()) {
      if (report.backend != own->name() || report.reason.empty()) continue;
      EmitLine(log, Severity::kWarning,
               fmt::format("the functions of the caller ({}) are left out: {}", report.backend,
                           report.reason));
    }
  }
}

Result<std::unique_ptr<cotune_group>> Create(const cotune_group_options* given) {
  COTUNE_TRY(const cotune_group_options options, ReadOptions(given, "cotune_group_options"));
  const uint64_t number = CountUnnamed(options);
  COTUNE_RETURN_IF_ERROR(CheckTimeouts(options));
  const auto log = std::make_shared<CallerLog>(options);
  SettingValues settings;
  COTUNE_TRY(JobOptions job_options, JobOptionsOf(options, number, log, settings));
  auto node = std::make_shared<JobNode>();
  node->log = log;
  Result<std::unique_ptr<Job>> job = Job::Join(job_options);
  if (!job) return tl::make_unexpected(WithNumber(job.error(), number, job_options.context));
  node->job = std::move(*job);
  if (node->job->rank() == 0) {
    for (const std::string& warning : node->job->setting_warnings())
      EmitLine(*log, Severity::kWarning, warning);
    WarnOfLeftOut(job_options, *node->job, *log);
    const ForcedChoices& forced = node->job->settings().force;
    if (!forced.empty()) {
      EmitLine(*log, Severity::kInfo,
               fmt::format("forced choices ({}): {}", node->job->force_origin(), forced.text()));
    }
  }
  DatabasePlan database{
      DatabasePath(settings.database, ProcessEnvironment(), node->job->fingerprint()),
      !settings.database.empty(), settings.load_database && options.ignores_database == 0};
  return GroupOf(std::move(node),
                 options.call_timeout_ns > 0 ? options.call_timeout_ns : kCallTimeoutNs,
                 std::move(database));
}

Result<std::unique_ptr<cotune_group>> Split(cotune_group* parent, const char* name,
                                            const int32_t* ranks, size_t rank_count) {
  if (parent == nullptr || name == nullptr || ranks == nullptr || rank_count == 0) {
    return Fail(ErrorCode::kUsage, "parent, name and ranks must be given", "cotune_group_split");
  }
  const std::string text = name;
  if (text.empty() || text.size() > kSplitNameMax) {
    return Fail(ErrorCode::kUsage,
                fmt::format("the name of a subgroup has {} characters", text.size()),
                "cotune_group_split", "", fmt::format("use 1 to {}", kSplitNameMax));
  }
  auto node = std::make_shared<JobNode>();
  node->parent = parent->node;
  node->log = parent->node->log;
  COTUNE_TRY(std::unique_ptr<Job> job,
             parent->job().Split(text, std::vector<int>(ranks, ranks + rank_count)));
  node->job = std::move(job);
  return GroupOf(std::move(node), parent->call_timeout_ns,
                 {parent->database_place, parent->names_database, parent->loads_database});
}

Status SetStream(cotune_group& group, void* stream) {
  Device& device = group.job().device();
  if (device.kind() == MemoryKind::kHost) {
    return Fail(ErrorCode::kUsage, "calls on host memory run on no stream",
                "cotune_group_set_stream", "", "create the group with COTUNE_GROUP_MEMORY_CUDA");
  }
  if (stream == group.stream) return {};
  if (Status ordered = device.OrderStreams(group.stream, stream); !ordered) return ordered;
  group.stream = stream;
  return {};
}

// Runs `make` and hands its group over, or its error, which the parent, if any, remembers too.
// Nothing is thrown out.
template <typename Make>
cotune_result HandOver(cotune_group* parent, cotune_group** group, cotune_error* error,
                       const Make& make) noexcept {
  bool is_usable = true;  // the parent
  Error failure{ErrorCode::kUsage, "the pointer for the group is NULL", "", "", "", {}};
  if (group != nullptr) {
    *group = nullptr;
    try {
      const Status usable = parent == nullptr ? Status() : CheckUsable(*parent);
      is_usable = usable.has_value();
      Result<std::unique_ptr<cotune_group>> made = usable ? make() : Propagate(usable);
      if (made) {
        *group = made->release();
        return COTUNE_SUCCESS;
      }
      failure = std::move(made.error());
    } catch (...) {
      const char* const what = "making the group failed";
      failure =
          parent == nullptr ? ErrorOfException(what) : StopForException(*parent, what, StopInDoubt);
    }
  }
  if (parent != nullptr) {
    // A parent that cannot be used gives its own error, which says nothing of the other ranks.
    if (is_usable) failure = StopInDoubt(*parent, failure);
    Remember(*parent, tl::make_unexpected(failure));
  }
  WriteError(failure, error);
  return ResultOf(failure.code);
}

}  // namespace
}  // namespace cotune::capi

extern "C" {

cotune_result cotune_group_create(const cotune_group_options* options, cotune_group** group,
                                  cotune_error* error) {
  return cotune::capi::HandOver(nullptr, group, error,
                                [&] { return cotune::capi::Create(options); });
}

cotune_result cotune_group_split(cotune_group* parent, const char* name, const int32_t* ranks,
                                 size_t rank_count, cotune_group** group, cotune_error* error) {
  return cotune::capi::HandOver(
      parent, group, error, [&] { return cotune::capi::Split(parent, name, ranks, rank_count); });
}

void cotune_group_destroy(cotune_group* group) {
  // In a forked child the threads that a destructor waits for are not there.
  if (group == nullptr || !group->home.IsHere()) return;
  // A thread that never comes back from a plugin still uses all of it. (One that is in the abort of
  // the group, and is not known to be stuck yet, is waited for a few seconds when the job goes.)
  if (group->job().stuck() != nullptr) return;
  delete group;
}

int32_t cotune_group_rank(const cotune_group* group) {
  return group == nullptr ? -1 : group->job().rank();
}

int32_t cotune_group_size(const cotune_group* group) {
  return group == nullptr ? 0 : group->job().world_size();
}

uint64_t cotune_table_digest(const cotune_group* group) {
  return group == nullptr ? 0 : group->table_digest;
}

int64_t cotune_table_generation(const cotune_group* group) {
  return group == nullptr ? -1 : group->table_generation;
}

int32_t cotune_group_device(const cotune_group* group) {
  return group == nullptr ? -1 : group->job().device().ordinal();
}

cotune_result cotune_group_set_stream(cotune_group* group, void* stream) {
  return cotune::capi::Guard(
      group, [&](cotune_group& self) { return cotune::capi::SetStream(self, stream); });
}

cotune_result cotune_group_abort(cotune_group* group, const char* reason) {
  // Nothing of the group that its own thread may be using is touched, its last error neither.
  if (group == nullptr || !group->home.IsHere()) return COTUNE_ERROR_USAGE;
  try {
    group->job().GiveUp(reason == nullptr ? "" : reason);
    return COTUNE_SUCCESS;
  } catch (...) {
    return COTUNE_ERROR_INTERNAL;
  }
}

cotune_result cotune_group_check(cotune_group* group) {
  return cotune::capi::Guard(group, [](cotune_group& self) { return self.dispatcher->Health(); });
}

const char* cotune_last_error(const cotune_group* group) {
  return group == nullptr ? "" : group->error_text.c_str();
}

cotune_result cotune_last_result(const cotune_group* group) {
  return group == nullptr ? COTUNE_SUCCESS : group->error_result;
}

const char* cotune_version(void) { return cotune::CotuneVersion(); }

int cotune_exit_code(cotune_result result) {
  switch (result) {
    case COTUNE_SUCCESS:
      return 0;
    case COTUNE_ERROR_USAGE:
      return cotune::ExitCode(cotune::ErrorCode::kUsage);
    case COTUNE_ERROR_ENVIRONMENT:
    case COTUNE_ERROR_UNSUPPORTED:
      return cotune::ExitCode(cotune::ErrorCode::kEnvironment);
    case COTUNE_ERROR_WRONG_RESULT:
      return cotune::ExitCode(cotune::ErrorCode::kWrongResult);
    case COTUNE_ERROR_RANK_LOST:
    case COTUNE_ERROR_DEADLINE:
    case COTUNE_ERROR_ABORTED:
    case COTUNE_ERROR_DISAGREEMENT:
      return cotune::ExitCode(cotune::ErrorCode::kRankLost);
    case COTUNE_ERROR_DATABASE:
      return cotune::ExitCode(cotune::ErrorCode::kDatabase);
    case COTUNE_ERROR_PLUGIN:
      return cotune::ExitCode(cotune::ErrorCode::kPluginRefused);
    case COTUNE_ERROR_INTERRUPTED:
      return cotune::ExitCode(cotune::ErrorCode::kInterrupted);
    default:
      return cotune::ExitCode(cotune::ErrorCode::kInternal);
  }
}

}  // extern "C"
