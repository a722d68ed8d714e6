// A plan of a group, which the table of the plugin or an extension runs, as a core::Plan.
#ifndef COTUNE_PLUGINS_LOADER_GROUP_PLAN_H_
#define COTUNE_PLUGINS_LOADER_GROUP_PLAN_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "core/backend/backend.h"
#include "plugins/loader/group_context.h"
#include "plugins/loader/plugin_call.h"
#include "plugins/loader/plugin_status.h"
#include "plugins/loader/thread_rule_check.h"

namespace cotune {

// Shares with all plans of a group the group's context, the watch over each call, abort,
// and errors. `Handle` holds the plugin's plan and calls its functions:
//   cotune_status_t Launch(const LaunchArguments&, const cotune_stream_t&, cotune_error_t*);
//   cotune_status_t Progress(int64_t until_ns, cotune_error_t*);
//   void Destroy();
// A template and not a base class, because a launch should take no further step.
template <class Handle>
class GroupPlan final : public Plan {
 public:
  GroupPlan(std::shared_ptr<GroupContext> context, std::unique_ptr<const CallSubject> subject,
            Handle handle, MemoryKind memory, bool is_capturable)
      : context_(std::move(context)),
        subject_(std::move(subject)),
        handle_(handle),
        memory_(memory),
        is_capturable_(is_capturable) {}
  GroupPlan(const GroupPlan&) = delete;
  GroupPlan& operator=(const GroupPlan&) = delete;
  ~GroupPlan() override {
    {
      const ThreadRuleCheck::Scope scope(context_->guard, "plan_destroy");
      InvokeWithoutAnswer(*context_->backend, *subject_, "plan_destroy",
                          [&] { handle_.Destroy(); });
    }
    if (context_->backend->watchdog != nullptr) context_->backend->watchdog->AwaitReader();
  }

  bool is_capturable() const override { return is_capturable_; }

  Status Launch(const LaunchArguments& arguments) override {
    const uint32_t kind = memory_ == MemoryKind::kCuda ? COTUNE_STREAM_CUDA : COTUNE_STREAM_HOST;
    const cotune_stream_t stream = {kind, context_->parameters.device, arguments.stream};
    deadline_ns_ = arguments.deadline_ns;
    cotune_error_t error = EmptyError();
    const ThreadRuleCheck::Scope scope(context_->guard, "launch");
    bool is_called = false;
    const Result<cotune_status_t> status = Invoke(
        *context_->backend, *context_->slot, *subject_, "launch", arguments.deadline_ns, [&] {
          is_called = true;
          return handle_.Launch(arguments, stream, &error);
        });
    if (status && *status >= 0) return launched_;
    return Failed<void>("launch", status, error, is_called);
  }

  Result<bool> Progress(int64_t until_ns) override {
    cotune_error_t error = EmptyError();
    const ThreadRuleCheck::Scope scope(context_->guard, "progress");
    const Result<cotune_status_t> status =
        Invoke(*context_->backend, *context_->slot, *subject_, "progress", deadline_ns_,
               [&] { return handle_.Progress(until_ns, &error); });
    if (status && *status >= 0) return *status == COTUNE_OK;
    return Failed<bool>("progress", status, error, true);
  }

  void Abort() override {
    AbortAside(context_->backend->watchdog, GroupContext::AbortOf(context_), *subject_);
  }
  bool IsAborted() const override { return context_->is_aborted(); }

 private:
  // The error of a call that has failed, has thrown or was not made. Adds the warning of
  // LeftInFlight on host memory, if an operation may be in flight. Not inlined: launch and progress
  // need no space for the error then.
  template <class Value>
  [[gnu::noinline]] Result<Value> Failed(const char* call, const Result<cotune_status_t>& status,
                                         const cotune_error_t& error, bool is_in_flight) const {
    if (status) {
      return ToError(*status, error, call, context_->table().name, context_->parameters.job_ranks);
    }
    if (!is_in_flight || memory_ != MemoryKind::kHost) return Propagate(status);
    return LeftInFlight(*context_->backend, status.error());
  }

  const std::shared_ptr<GroupContext> context_;
  const std::unique_ptr<const CallSubject> subject_;
  Handle handle_;
  const MemoryKind memory_;
  const bool is_capturable_;
  int64_t deadline_ns_ = 0;  // the running operation's
  // Success, which launches copy: a new Status is first filled with zeroes, all of the space of an
  // error, which takes longer than all that is checked here.
  const Status launched_{};
};

}  // namespace cotune

#endif  // COTUNE_PLUGINS_LOADER_GROUP_PLAN_H_
