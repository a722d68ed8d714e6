#include "plugins/loader/backend_adapter.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/backend/call_watchdog.h"
#include "fmt/format.h"
#include "plugins/loader/backend_extensions.h"
#include "plugins/loader/backend_host.h"
#include "plugins/loader/choice_listing.h"
#include "plugins/loader/plugin_status.h"
#include "plugins/loader/program_listing.h"
#include "plugins/loader/thread_rule_check.h"

namespace cotune {
namespace {

constexpr char kNoMemory[] = "memory extension not offered: it works on plain buffers only";
constexpr uint32_t kTextBytesMax = 256;  // of what a backend says of connections and libraries
constexpr char kNoFusion[] = "fusion extension not offered: it runs single collectives only";

// A backend as its calls see it. Held by its groups and plans too.
class BackendContext {
 public:
  BackendContext(const cotune_backend_api_t& table_of_backend,
                 std::unique_ptr<BackendHost> its_host, const std::string& where,
                 const AdoptOptions& options)
      : table(table_of_backend),
        host(std::move(its_host)),
        plugin(where),
        watchdog(options.watchdog),
        check_threads(options.check_threads),
        subject(CallSubject::OfBackend(table.name, where)) {}
  const cotune_backend_api_t& table;
  const std::unique_ptr<BackendHost> host;
  const std::string plugin;
  CallWatchdog* const watchdog;  // may be nullptr
  const bool check_threads;
  const CallSubject subject;

  // Whether no plugin may be called any more, because one of the process is stuck in a call.
  const Error* stuck() const { return watchdog == nullptr ? nullptr : watchdog->stuck(); }
  // The deadline of a call that has none of its own.
  int64_t DeadlineOfCall() const {
    return watchdog == nullptr ? INT64_MAX : watchdog->DeadlineOfCall();
  }
  // Whether the log has not said yet that this function threw: each of hundreds of plans may.
  bool IsNews(const char* function) const {
    const std::lock_guard lock(mutex_);
    return said_.insert(function).second;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::set<std::string> said_;
};

tl::unexpected<Error> Threw(const CallSubject& subject, const char* function, const char* what) {
  return Fail(ErrorCode::kInternal, fmt::format("{} threw an exception: {}", function, what),
              subject.text, "a backend lets no exception out of its functions",
              "leave the backend out, or report it to whoever ships the plugin");
}

// Makes one call into the plugin, watched, at a place where calls come one at a time. Its answer,
// or the error that it threw, or why no plugin may be called.
template <typename Call>
Result<cotune_status_t> Invoke(const BackendContext& context, CallSlot& slot,
                               const CallSubject& subject, const char* function,
                               int64_t deadline_ns, const Call& call) {
  if (const Error* stuck = context.stuck()) return tl::make_unexpected(*stuck);
  const RunningCall running(slot, subject, function, deadline_ns);
  try {
    return call();
  } catch (const std::exception& exception) {
    return Threw(subject, function, exception.what());
  } catch (...) {
    return Threw(subject, function, "it is no std::exception");
  }
}

// The same at a place of its own, for calls that may come at the same time as others.
template <typename Call>
Result<cotune_status_t> InvokeApart(const BackendContext& context, const CallSubject& subject,
                                    const char* function, int64_t deadline_ns,
                                    std::function<void()> abort, const Call& call) {
  CallSlot slot(context.watchdog, std::move(abort));
  return Invoke(context, slot, subject, function, deadline_ns, call);
}

// For calls that give nothing back: what they threw is said in the log, once.
template <typename Call>
void InvokeWithoutAnswer(const BackendContext& context, const CallSubject& subject,
                         const char* function, const Call& call) {
  const Result<cotune_status_t> done = InvokeApart(
      context, subject, function, context.DeadlineOfCall(), nullptr, [&]() -> cotune_status_t {
        call();
        return COTUNE_OK;
      });
  if (done || context.stuck() != nullptr || !context.IsNews(function)) return;
  constexpr int32_t kError = 3;
  const cotune_host_t& host = context.host->table();
  host.log(host.context, kError, done.error().ToText().c_str());
}

// The state that the objects of one group share. Held by each, so that a plan may outlive its group
// object's members while it is destroyed, and by a thread that aborts the group.
class GroupContext {
 public:
  GroupContext(std::shared_ptr<const BackendContext> backend_context,
               const BackendExtensions& backend_extensions, GroupParameters group_parameters,
               cotune_group_t* group)
      : backend(std::move(backend_context)),
        extensions(backend_extensions),
        parameters(std::move(group_parameters)),
        guard(backend->check_threads,
              fmt::format("group {} of backend {}", parameters.name, backend->table.name)),
        handle(group) {}
  GroupContext(const GroupContext&) = delete;
  GroupContext& operator=(const GroupContext&) = delete;

  const cotune_backend_api_t& table() const { return backend->table; }
  bool is_aborted() const { return is_aborted_.load(std::memory_order_relaxed); }

  // Any thread; nothing after Destroy.
  void Abort() {
    {
      const std::lock_guard lock(mutex_);
      if (is_destroyed_) return;
      ++running_aborts_;
    }
    is_aborted_ = true;
    InvokeWithoutAnswer(*backend, backend->subject, "group_abort",
                        [&] { table().group_abort(handle); });
    const std::lock_guard lock(mutex_);
    --running_aborts_;
    ended_.notify_all();
  }

  // Waits for aborts that are on their way. Nothing is destroyed that a stuck call still uses.
  void Destroy() {
    {
      std::unique_lock lock(mutex_);
      while (running_aborts_ > 0 && backend->stuck() == nullptr) {
        ended_.wait_for(lock, kStuckPoll);
      }
      if (running_aborts_ > 0) return;
      is_destroyed_ = true;
    }
    const ThreadRuleCheck::Scope scope(guard, "group_destroy");
    InvokeWithoutAnswer(*backend, backend->subject, "group_destroy",
                        [&] { table().group_destroy(handle); });
    // Now, as the last to hold this may be a thread that has aborted it and outlives the watchdog.
    slot.reset();
  }

  // How a call into the plugin is freed; keeps this alive for as long as that takes.
  static std::function<void()> AbortOf(const std::shared_ptr<GroupContext>& context) {
    // The place of the group's calls is a part of the group, which it must not keep alive.
    return [weak = std::weak_ptr<GroupContext>(context)] {
      if (const std::shared_ptr<GroupContext> alive = weak.lock()) alive->Abort();
    };
  }

  const std::shared_ptr<const BackendContext> backend;
  const BackendExtensions extensions;
  const GroupParameters parameters;
  ThreadRuleCheck guard;
  cotune_group_t* const handle;
  std::unique_ptr<CallSlot> slot;  // of launch and progress; set before the first of them

 private:
  // How often a wait for an abort looks whether it will never end.
  static constexpr std::chrono::milliseconds kStuckPoll{10};

  std::atomic<bool> is_aborted_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  int running_aborts_ = 0;
  bool is_destroyed_ = false;
};

class AdaptedPlan final : public Plan {
 public:
  AdaptedPlan(std::shared_ptr<GroupContext> context, std::unique_ptr<const CallSubject> subject,
              cotune_plan_t* plan, MemoryKind memory, bool is_capturable)
      : context_(std::move(context)),
        subject_(std::move(subject)),
        plan_(plan),
        memory_(memory),
        is_capturable_(is_capturable) {}

  AdaptedPlan(const AdaptedPlan&) = delete;
  AdaptedPlan& operator=(const AdaptedPlan&) = delete;
  ~AdaptedPlan() override {
    {
      const ThreadRuleCheck::Scope scope(context_->guard, "plan_destroy");
      InvokeWithoutAnswer(*context_->backend, *subject_, "plan_destroy",
                          [&] { context_->table().plan_destroy(plan_); });
    }
    if (context_->backend->watchdog != nullptr) context_->backend->watchdog->AwaitReader();
  }

  bool is_capturable() const override { return is_capturable_; }

  Status Launch(const LaunchArguments& arguments) override {
    cotune_launch_t launch{};
    launch.struct_size = sizeof(launch);
    launch.send = arguments.send;
    launch.recv = arguments.recv;
    launch.stream.kind = memory_ == MemoryKind::kCuda ? COTUNE_STREAM_CUDA : COTUNE_STREAM_HOST;
    launch.stream.device = context_->parameters.device;
    launch.stream.handle = arguments.stream;
    launch.deadline_ns = deadline_ns_ = arguments.deadline_ns;
    cotune_error_t error = EmptyError();
    const ThreadRuleCheck::Scope scope(context_->guard, "launch");
    const Result<cotune_status_t> status =
        Invoke(*context_->backend, *context_->slot, *subject_, "launch", arguments.deadline_ns,
               [&] { return context_->table().launch(plan_, &launch, &error); });
    if (!status) return Propagate(status);
    if (*status < 0) return Failure(*status, error, "launch");
    return {};
  }

  Result<bool> Progress(int64_t until_ns) override {
    cotune_error_t error = EmptyError();
    const ThreadRuleCheck::Scope scope(context_->guard, "progress");
    const Result<cotune_status_t> status =
        Invoke(*context_->backend, *context_->slot, *subject_, "progress", deadline_ns_,
               [&] { return context_->table().progress(plan_, until_ns, &error); });
    if (!status) return Propagate(status);
    if (*status < 0) return Failure(*status, error, "progress");
    if (*status == COTUNE_OK) return true;
    // A plan that does not see that its group was aborted must not be asked for ever.
    if (!context_->is_aborted()) return false;
    return Fail(ErrorCode::kAborted, "the group was aborted", subject_->text);
  }

 private:
  tl::unexpected<Error> Failure(cotune_status_t status, const cotune_error_t& error,
                                const char* call) const {
    return ToError(status, error, call, context_->table().name, context_->parameters.job_ranks);
  }

  std::shared_ptr<GroupContext> context_;
  const std::unique_ptr<const CallSubject> subject_;
  cotune_plan_t* plan_;
  MemoryKind memory_;
  const bool is_capturable_;
  int64_t deadline_ns_ = 0;  // of the operation that runs
};

class AdaptedGroup final : public BackendGroup {
 public:
  explicit AdaptedGroup(std::shared_ptr<GroupContext> context) : context_(std::move(context)) {
    context_->slot =
        std::make_unique<CallSlot>(context_->backend->watchdog, GroupContext::AbortOf(context_));
  }

  AdaptedGroup(const AdaptedGroup&) = delete;
  AdaptedGroup& operator=(const AdaptedGroup&) = delete;
  ~AdaptedGroup() override { context_->Destroy(); }

  Result<std::unique_ptr<Plan>> Prepare(const Program& program, const Problem& problem,
                                        const Choice& choice, int64_t deadline_ns) override {
    // A call that is given up may come back when this object is gone.
    const std::shared_ptr<GroupContext> context = context_;
    const cotune_backend_api_t& table = context->table();
    if (!program.is_single_collective()) {
      return Fail(ErrorCode::kUnsupported, kNoFusion, fmt::format("backend {}", table.name));
    }
    cotune_problem_t abi_problem = ToAbi(problem);
    abi_problem.program_digest = problem.cls.program_digest;
    const std::string name(choice.id.choice_name());
    auto subject = std::make_unique<const CallSubject>(
        CallSubject::OfChoice(table.name, context->backend->plugin, choice.id, problem));
    cotune_plan_t* plan = nullptr;
    cotune_error_t error = EmptyError();
    const ThreadRuleCheck::Scope scope(context->guard, "prepare");
    const Result<cotune_status_t> status = InvokeApart(
        *context->backend, *subject, "prepare", deadline_ns, GroupContext::AbortOf(context), [&] {
          return table.prepare(context->handle, &abi_problem, name.c_str(), deadline_ns, &plan,
                               &error);
        });
    if (!status) return Propagate(status);
    if (*status != COTUNE_OK || plan == nullptr) {
      return ToError(*status < 0 ? *status : COTUNE_INTERNAL, error, "prepare", table.name,
                     context->parameters.job_ranks);
    }
    return std::make_unique<AdaptedPlan>(context, std::move(subject), plan, problem.cls.memory,
                                         choice.is_capturable);
  }

  Status RegisterMemory(void* data, uint64_t bytes, int64_t deadline_ns) override {
    if (context_->extensions.memory == nullptr) {
      return Fail(ErrorCode::kUnsupported, kNoMemory,
                  fmt::format("backend {}", context_->table().name));
    }
    cotune_error_t error = EmptyError();
    const ThreadRuleCheck::Scope scope(context_->guard, "memory_register");
    const Result<cotune_status_t> status =
        InvokeApart(*context_->backend, context_->backend->subject, "memory_register", deadline_ns,
                    GroupContext::AbortOf(context_), [&] {
                      return context_->extensions.memory->memory_register(
                          context_->handle, data, bytes, deadline_ns, &error);
                    });
    if (!status) return Propagate(status);
    if (*status == COTUNE_OK) return {};
    return ToError(*status < 0 ? *status : COTUNE_INTERNAL, error, "memory_register",
                   context_->table().name, context_->parameters.job_ranks);
  }

  void UnregisterMemory(void* data) override {
    if (context_->extensions.memory == nullptr) return;
    const ThreadRuleCheck::Scope scope(context_->guard, "memory_unregister");
    InvokeWithoutAnswer(*context_->backend, context_->backend->subject, "memory_unregister", [&] {
      context_->extensions.memory->memory_unregister(context_->handle, data);
    });
  }

  Status Health() override {
    cotune_error_t error = EmptyError();
    const Result<cotune_status_t> status =
        InvokeApart(*context_->backend, context_->backend->subject, "group_health",
                    context_->backend->DeadlineOfCall(), nullptr,
                    [&] { return context_->table().group_health(context_->handle, &error); });
    if (!status) return Propagate(status);
    if (*status == COTUNE_OK) return {};
    return ToError(*status, error, "group_health", context_->table().name,
                   context_->parameters.job_ranks);
  }

  std::vector<std::string> Connections() override {
    if (context_->extensions.connections == nullptr) return {};
    const auto& job_ranks = context_->parameters.job_ranks;
    std::vector<std::string> texts;
    for (int32_t peer = 0; static_cast<size_t>(peer) < job_ranks.size(); ++peer) {
      const bool is_self = peer == context_->parameters.rank;
      texts.push_back(is_self ? "" : ConnectionTo(peer));
    }
    return texts;
  }

  void Abort() override { context_->Abort(); }

 private:
  std::string ConnectionTo(int32_t peer) {
    std::array<char, kTextBytesMax> text{};
    cotune_error_t error = EmptyError();
    const ThreadRuleCheck::Scope scope(context_->guard, "connection_text");
    const Result<cotune_status_t> status =
        InvokeApart(*context_->backend, context_->backend->subject, "connection_text",
                    context_->backend->DeadlineOfCall(), nullptr, [&] {
                      return context_->extensions.connections->connection_text(
                          context_->handle, peer, text.data(), kTextBytesMax, &error);
                    });
    // Only people read it: a failure is told there, too.
    if (!status) return "not known: " + status.error().what;
    if (*status != COTUNE_OK) return "not known: " + TextOf(error, "connection_text");
    return {text.data(), strnlen(text.data(), text.size() - 1)};
  }

  std::shared_ptr<GroupContext> context_;
};

// A part, which belongs to no group. The launch may do all of the work.
class AdaptedPart final : public Plan {
 public:
  AdaptedPart(std::shared_ptr<const BackendContext> context, const cotune_program_v1_t& extension,
              std::unique_ptr<const CallSubject> subject, cotune_plan_t* plan, MemoryKind memory,
              int32_t device)
      : context_(std::move(context)),
        extension_(extension),
        subject_(std::move(subject)),
        plan_(plan),
        memory_(memory),
        device_(device),
        slot_(context_->watchdog, nullptr) {}
  AdaptedPart(const AdaptedPart&) = delete;
  AdaptedPart& operator=(const AdaptedPart&) = delete;
  ~AdaptedPart() override {
    InvokeWithoutAnswer(*context_, *subject_, "plan_destroy",
                        [&] { context_->table.plan_destroy(plan_); });
    if (context_->watchdog != nullptr) context_->watchdog->AwaitReader();
  }

  bool is_capturable() const override { return memory_ == MemoryKind::kCuda; }

  Status Launch(const LaunchArguments& arguments) override {
    cotune_program_launch_t launch{};
    launch.struct_size = sizeof(launch);
    launch.inputs = arguments.inputs.data();
    launch.outputs = arguments.outputs.data();
    launch.stream.kind = memory_ == MemoryKind::kCuda ? COTUNE_STREAM_CUDA : COTUNE_STREAM_HOST;
    launch.stream.device = device_;
    launch.stream.handle = arguments.stream;
    launch.deadline_ns = deadline_ns_ = arguments.deadline_ns;
    cotune_error_t error = EmptyError();
    const Result<cotune_status_t> status =
        Invoke(*context_, slot_, *subject_, "launch of a part", arguments.deadline_ns,
               [&] { return extension_.launch(plan_, &launch, &error); });
    if (!status) return Propagate(status);
    if (*status < 0) return ToError(*status, error, "launch", context_->table.name, {});
    return {};
  }

  Result<bool> Progress(int64_t until_ns) override {
    cotune_error_t error = EmptyError();
    const Result<cotune_status_t> status =
        Invoke(*context_, slot_, *subject_, "progress of a part", deadline_ns_,
               [&] { return context_->table.progress(plan_, until_ns, &error); });
    if (!status) return Propagate(status);
    if (*status < 0) return ToError(*status, error, "progress", context_->table.name, {});
    return *status == COTUNE_OK;
  }

 private:
  const std::shared_ptr<const BackendContext> context_;
  const cotune_program_v1_t& extension_;
  const std::unique_ptr<const CallSubject> subject_;
  cotune_plan_t* const plan_;
  const MemoryKind memory_;
  const int32_t device_;
  CallSlot slot_;  // calls of one plan come one at a time
  int64_t deadline_ns_ = 0;
};

// Asks for an extension; nullptr when the backend has none.
Result<const void*> ExtensionOf(const BackendContext& context, const cotune_backend_t* backend,
                                const char* id) {
  const void* found = nullptr;
  const Result<cotune_status_t> asked =
      InvokeApart(context, context.subject, "get_extension", context.DeadlineOfCall(), nullptr,
                  [&]() -> cotune_status_t {
                    found = context.table.get_extension(backend, id);
                    return COTUNE_OK;
                  });
  if (!asked) return Propagate(asked);
  return found;
}

// All of them, as far as they can be used.
Result<BackendExtensions> ExtensionsOf(const BackendContext& context,
                                       const cotune_backend_t* backend, const std::string& where) {
  BackendExtensions extensions;
  for (const char* id : BackendExtensions::kIds) {
    const Result<const void*> found = ExtensionOf(context, backend, id);
    if (!found) return Propagate(found);
    if (Status taken = extensions.Take(id, *found, where); !taken) return Propagate(taken);
  }
  return extensions;
}

// The libraries that the backend uses, with their versions; "" when it does not tell them.
Result<std::string> LibrariesOf(const BackendContext& context, const BackendExtensions& extensions,
                                const cotune_backend_t* backend, const std::string& where) {
  if (extensions.libraries == nullptr) return std::string();
  std::array<char, kTextBytesMax> text{};
  cotune_error_t error = EmptyError();
  const Result<cotune_status_t> status = InvokeApart(
      context, context.subject, "libraries_text", context.DeadlineOfCall(), nullptr, [&] {
        return extensions.libraries->libraries_text(backend, text.data(), kTextBytesMax, &error);
      });
  const std::string told(text.data(), strnlen(text.data(), text.size() - 1));
  std::string why;
  if (!status || *status != COTUNE_OK) {
    why = status ? TextOf(error, "libraries_text") : status.error().what;
  } else if (told.size() == text.size() - 1) {
    why = fmt::format("its text fills the {} bytes that it was given", text.size());
  } else if (std::any_of(told.begin(), told.end(),
                         [](char c) { return c == 0x7f || (c >= 0 && c < 0x20); })) {
    why = "its text holds a control character";
  } else {
    return told;
  }
  return Fail(ErrorCode::kPluginRefused,
              fmt::format("plugin refused at step 'extension {}'", COTUNE_LIBRARIES_EXTENSION),
              where, why, "leave the backend out, or report it to whoever ships the plugin");
}

void DestroyBackend(const BackendContext& context, cotune_backend_t* backend) {
  InvokeWithoutAnswer(context, context.subject, "destroy", [&] { context.table.destroy(backend); });
}

class AdaptedBackend final : public Backend {
 public:
  AdaptedBackend(std::shared_ptr<const BackendContext> context, const BackendExtensions& extensions,
                 std::string libraries, cotune_backend_t* backend, int32_t device)
      : context_(std::move(context)),
        extensions_(extensions),
        backend_(backend),
        device_(device),
        name_(context_->table.name),
        version_(context_->table.version),
        libraries_(std::move(libraries)) {}
  AdaptedBackend(const AdaptedBackend&) = delete;
  AdaptedBackend& operator=(const AdaptedBackend&) = delete;
  ~AdaptedBackend() override { DestroyBackend(*context_, backend_); }

  const std::string& name() const override { return name_; }
  const std::string& version() const override { return version_; }
  std::string libraries() const override { return libraries_; }

  ChoiceList ListChoices(const Program& program, const Problem& problem) const override {
    if (!program.is_single_collective()) return ChoiceList{{}, {{name_, kNoFusion}}};
    ChoiceList list;
    const Result<cotune_status_t> listed =
        InvokeApart(*context_, context_->subject, "list_choices", context_->DeadlineOfCall(),
                    nullptr, [&]() -> cotune_status_t {
                      list = ListTableChoices(context_->table, backend_, problem);
                      return COTUNE_OK;
                    });
    if (!listed) return ChoiceList{{}, {{name_, listed.error().ToText()}}};
    return list;
  }

  bool has_parts() const override {
    return extensions_.program != nullptr && extensions_.program->part_prepare != nullptr;
  }

  Result<std::unique_ptr<Plan>> PreparePart(const PartRequest& request,
                                            int64_t deadline_ns) override {
    if (!has_parts()) return Backend::PreparePart(request, deadline_ns);
    const AbiProgram abi(request.part, request.rows,
                         {request.memory, request.world_size, request.world_size}, 0,
                         request.rounds_values);
    auto subject = std::make_unique<CallSubject>(context_->subject);
    subject->text +=
        fmt::format(", a part of a program with {} operations", request.part.nodes().size());
    cotune_plan_t* plan = nullptr;
    cotune_error_t error = EmptyError();
    const Result<cotune_status_t> status =
        InvokeApart(*context_, *subject, "part_prepare", deadline_ns, nullptr, [&] {
          return extensions_.program->part_prepare(backend_, &abi.program(), deadline_ns, &plan,
                                                   &error);
        });
    if (!status) return Propagate(status);
    if (*status != COTUNE_OK || plan == nullptr) {
      return ToError(*status < 0 ? *status : COTUNE_INTERNAL, error, "part_prepare", name_, {});
    }
    return std::make_unique<AdaptedPart>(context_, *extensions_.program, std::move(subject), plan,
                                         request.memory, device_);
  }

  Result<std::unique_ptr<BackendGroup>> CreateGroup(const GroupParameters& parameters) override {
    cotune_group_params_t params{};
    params.struct_size = sizeof(params);
    params.name = parameters.name.c_str();
    params.rank = parameters.rank;
    params.world_size = static_cast<int32_t>(parameters.job_ranks.size());
    params.job_ranks = parameters.job_ranks.data();
    params.device = parameters.device;
    params.deadline_ns = parameters.deadline_ns;
    if (!parameters.host_of_rank.empty()) params.host_of_rank = parameters.host_of_rank.data();
    cotune_group_t* group = nullptr;
    cotune_error_t error = EmptyError();
    const Result<cotune_status_t> status = InvokeApart(
        *context_, context_->subject, "group_create", parameters.deadline_ns, nullptr,
        [&] { return context_->table.group_create(backend_, &params, &group, &error); });
    if (!status) return Propagate(status);
    if (*status != COTUNE_OK || group == nullptr) {
      return ToError(*status < 0 ? *status : COTUNE_INTERNAL, error, "group_create", name_,
                     parameters.job_ranks);
    }
    return std::make_unique<AdaptedGroup>(
        std::make_shared<GroupContext>(context_, extensions_, parameters, group));
  }

 private:
  const std::shared_ptr<const BackendContext> context_;
  const BackendExtensions extensions_;
  cotune_backend_t* const backend_;
  const int32_t device_;
  const std::string name_;
  const std::string version_;
  const std::string libraries_;
};

}  // namespace

Result<std::unique_ptr<Backend>> AdoptBackend(const cotune_backend_api_t* table,
                                              const cotune_host_t& host, int32_t device,
                                              const std::string& where,
                                              const AdoptOptions& options) {
  if (Status checked = CheckTable(table, where); !checked) return Propagate(checked);
  const auto context = std::make_shared<const BackendContext>(
      *table, std::make_unique<BackendHost>(host, table->name), where, options);
  cotune_backend_t* backend = nullptr;
  cotune_error_t error = EmptyError();
  const Result<cotune_status_t> status =
      InvokeApart(*context, context->subject, "create", context->DeadlineOfCall(), nullptr,
                  [&] { return table->create(&context->host->table(), device, &backend, &error); });
  if (status && *status == COTUNE_UNSUPPORTED) {
    return Fail(ErrorCode::kUnsupported,
                fmt::format("backend {} cannot be used on this machine", table->name), where,
                TextOf(error, "create"), "run on a machine that has it");
  }
  if (!status || *status != COTUNE_OK || backend == nullptr) {
    // The host hands over only the user's settings, so a wrong argument is a wrong setting.
    const bool is_usage = status && *status == COTUNE_INVALID_ARGUMENT;
    return Fail(is_usage ? ErrorCode::kUsage : ErrorCode::kPluginRefused,
                "plugin refused at step 'create'", where,
                status ? TextOf(error, "create") : status.error().what,
                "check the backend's settings and its documentation");
  }
  const Result<BackendExtensions> extensions = ExtensionsOf(*context, backend, where);
  if (!extensions) {
    DestroyBackend(*context, backend);
    return Propagate(extensions);
  }
  Result<std::string> libraries = LibrariesOf(*context, *extensions, backend, where);
  if (!libraries) {
    DestroyBackend(*context, backend);
    return Propagate(libraries);
  }
  return std::make_unique<AdaptedBackend>(context, *extensions, std::move(*libraries), backend,
                                          device);
}

}  // namespace cotune
