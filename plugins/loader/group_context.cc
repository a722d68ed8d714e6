#include "plugins/loader/group_context.h"

#include <utility>

#include "fmt/format.h"

namespace cotune {

GroupContext::GroupContext(std::shared_ptr<const BackendContext> backend_context,
                           const BackendExtensions& backend_extensions,
                           GroupParameters group_parameters, cotune_group_t* group)
    : backend(std::move(backend_context)),
      extensions(backend_extensions),
      parameters(std::move(group_parameters)),
      guard(backend->check_threads,
            fmt::format("group {} of backend {}", parameters.name, backend->table.name)),
      handle(group) {}

void GroupContext::Abort() {
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

void GroupContext::Destroy() {
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

std::function<void()> GroupContext::AbortOf(const std::shared_ptr<GroupContext>& context) {
  // The place of the group's calls is a part of the group, which it must not keep alive.
  return [weak = std::weak_ptr<GroupContext>(context)] {
    if (const std::shared_ptr<GroupContext> alive = weak.lock()) alive->Abort();
  };
}

}  // namespace cotune
