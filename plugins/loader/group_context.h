// The group of a plugin, as its calls and plans share it.
#ifndef COTUNE_PLUGINS_LOADER_GROUP_CONTEXT_H_
#define COTUNE_PLUGINS_LOADER_GROUP_CONTEXT_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

#include "core/backend/backend.h"
#include "plugins/loader/backend_extensions.h"
#include "plugins/loader/plugin_call.h"
#include "plugins/loader/thread_rule_check.h"

namespace cotune {

// The state that the objects of one group share. Held by each, so that a plan may outlive its group
// object's members while it is destroyed, and by a thread that aborts the group.
class GroupContext {
 public:
  GroupContext(std::shared_ptr<const BackendContext> backend_context,
               const BackendExtensions& backend_extensions, GroupParameters group_parameters,
               cotune_group_t* group);
  GroupContext(const GroupContext&) = delete;
  GroupContext& operator=(const GroupContext&) = delete;

  const cotune_backend_api_t& table() const { return backend->table; }
  bool is_aborted() const { return is_aborted_.load(std::memory_order_relaxed); }

  // Any thread; nothing after Destroy.
  void Abort();
  // Waits for aborts that are on their way. Nothing is destroyed that a stuck call still uses.
  void Destroy();
  // Returns the function that frees a call into the plugin; it keeps the group alive while it runs.
  static std::function<void()> AbortOf(const std::shared_ptr<GroupContext>& context);

  const std::shared_ptr<const BackendContext> backend;
  const BackendExtensions extensions;
  const GroupParameters parameters;
  ThreadRuleCheck guard;
  cotune_group_t* const handle;
  std::unique_ptr<CallSlot> slot;  // for launch and progress; set before the first of them

 private:
  // Interval at which a wait for an abort looks whether it will never end.
  static constexpr std::chrono::milliseconds kStuckPoll{10};

  std::atomic<bool> is_aborted_{false};
  std::mutex mutex_;
  std::condition_variable ended_;
  int running_aborts_ = 0;
  bool is_destroyed_ = false;
};

}  // namespace cotune

#endif  // COTUNE_PLUGINS_LOADER_GROUP_CONTEXT_H_
