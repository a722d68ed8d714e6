#include "plugins/loader/adapted_group.h"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "plugins/loader/choice_listing.h"
#include "plugins/loader/plugin_status.h"
#include "plugins/loader/thread_rule_check.h"

namespace cotune {
namespace {

constexpr char kNoMemory[] = "memory extension not offered: it works on plain buffers only";
constexpr uint32_t kTextBytesMax = 256;  // the longest text about a connection

// The ABI grants operations the same patience as the code that runs them.
static_assert(LatestEndNs(0, 800) == COTUNE_LATEST_END_NS(INT64_C(0), INT64_C(800)));
static_assert(LatestEndNs(7, INT64_C(3600) << 30) ==
              COTUNE_LATEST_END_NS(INT64_C(7), INT64_C(3600) << 30));
static_assert(kAbortEndNs == COTUNE_ABORT_END_NS);

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
    bool is_called = false;
    const Result<cotune_status_t> status = Invoke(
        *context_->backend, *context_->slot, *subject_, "launch", arguments.deadline_ns, [&] {
          is_called = true;
          return context_->table().launch(plan_, &launch, &error);
        });
    if (!status) return is_called ? InFlight(status.error()) : Propagate(status);
    if (*status < 0) return Failure(*status, error, "launch");
    return {};
  }

  Result<bool> Progress(int64_t until_ns) override {
    cotune_error_t error = EmptyError();
    const ThreadRuleCheck::Scope scope(context_->guard, "progress");
    const Result<cotune_status_t> status =
        Invoke(*context_->backend, *context_->slot, *subject_, "progress", deadline_ns_,
               [&] { return context_->table().progress(plan_, until_ns, &error); });
    if (!status) return InFlight(status.error());
    if (*status < 0) return Failure(*status, error, "progress");
    return *status == COTUNE_OK;
  }

  void Abort() override {
    AbortAside(context_->backend->watchdog, GroupContext::AbortOf(context_), *subject_);
  }
  bool IsAborted() const override { return context_->is_aborted(); }

 private:
  // Adds the warning of LeftInFlight on host memory.
  tl::unexpected<Error> InFlight(Error error) const {
    if (memory_ != MemoryKind::kHost) return tl::make_unexpected(std::move(error));
    return LeftInFlight(*context_->backend, std::move(error));
  }
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
    COTUNE_TRY(const cotune_status_t status,
               InvokeApart(*context->backend, *subject, "prepare", deadline_ns,
                           GroupContext::AbortOf(context), [&] {
                             return table.prepare(context->handle, &abi_problem, name.c_str(),
                                                  deadline_ns, &plan, &error);
                           }));
    if (status != COTUNE_OK || plan == nullptr) {
      return ToError(status < 0 ? status : COTUNE_INTERNAL, error, "prepare", table.name,
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
    COTUNE_TRY(const cotune_status_t status,
               InvokeApart(*context_->backend, context_->backend->subject, "memory_register",
                           deadline_ns, GroupContext::AbortOf(context_), [&] {
                             return context_->extensions.memory->memory_register(
                                 context_->handle, data, bytes, deadline_ns, &error);
                           }));
    if (status == COTUNE_OK) return {};
    return ToError(status < 0 ? status : COTUNE_INTERNAL, error, "memory_register",
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
    COTUNE_TRY(const cotune_status_t status,
               InvokeApart(*context_->backend, context_->backend->subject, "group_health",
                           context_->backend->DeadlineOfCall(), nullptr, [&] {
                             return context_->table().group_health(context_->handle, &error);
                           }));
    if (status == COTUNE_OK) return {};
    return ToError(status, error, "group_health", context_->table().name,
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

}  // namespace

std::unique_ptr<BackendGroup> AdaptGroup(std::shared_ptr<const BackendContext> backend,
                                         const BackendExtensions& extensions,
                                         const GroupParameters& parameters, cotune_group_t* group) {
  return std::make_unique<AdaptedGroup>(
      std::make_shared<GroupContext>(std::move(backend), extensions, parameters, group));
}

}  // namespace cotune
