// Calls into a plugin: watched, and what they throw is caught.
#ifndef COTUNE_PLUGINS_LOADER_PLUGIN_CALL_H_
#define COTUNE_PLUGINS_LOADER_PLUGIN_CALL_H_

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "core/backend/call_watchdog.h"
#include "core/base/status.h"
#include "plugins/api/cotune_backend_v1.h"
#include "plugins/loader/backend_host.h"

namespace cotune {

// A backend as its calls see it. Held by its groups and plans too.
class BackendContext {
 public:
  BackendContext(const cotune_backend_api_t& table_of_backend,
                 std::unique_ptr<BackendHost> its_host, const std::string& where,
                 CallWatchdog* watchdog_of_calls, bool checks_threads)
      : table(table_of_backend),
        host(std::move(its_host)),
        plugin(where),
        watchdog(watchdog_of_calls),
        check_threads(checks_threads),
        subject(CallSubject::OfBackend(table.name, where)) {}
  const cotune_backend_api_t& table;
  const std::unique_ptr<BackendHost> host;
  const std::string plugin;
  CallWatchdog* const watchdog;  // may be nullptr
  const bool check_threads;
  const CallSubject subject;

  // Returns why no plugin may be called any more: one of the process is stuck in a call.
  const Error* stuck() const { return watchdog == nullptr ? nullptr : watchdog->stuck(); }
  // The deadline of a call that has none of its own.
  int64_t DeadlineOfCall() const {
    return watchdog == nullptr ? INT64_MAX : watchdog->DeadlineOfCall();
  }
  // Returns true the first time for each function that throws: each of hundreds of plans may.
  bool IsNews(const char* function) const {
    const std::lock_guard lock(mutex_);
    return said_.insert(function).second;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::set<std::string> said_;
};

// Makes the error of a call that threw. A Result, as Invoke returns it: whoever inlines Invoke
// needs no further space for an error.
Result<cotune_status_t> Threw(const CallSubject& subject, const char* function, const char* what);
// The answer of a call that is not made, because a thread is stuck in another one.
Result<cotune_status_t> NotCalled(const Error& stuck);

// Makes one call into the plugin, watched, at a place where calls come one at a time. Its answer,
// or the error that it threw, or why no plugin may be called.
template <typename Call>
Result<cotune_status_t> Invoke(const BackendContext& context, CallSlot& slot,
                               const CallSubject& subject, const char* function,
                               int64_t deadline_ns, const Call& call) {
  if (const Error* stuck = context.stuck()) return NotCalled(*stuck);
  const RunningCall running(slot, subject, function, deadline_ns);
  try {
    return call();
  } catch (const std::exception& exception) {
    return Threw(subject, function, exception.what());
  } catch (...) {
    return Threw(subject, function, "it is no std::exception");
  }
}

// The error of a call on host memory that has thrown, or of a turn that was not taken: what it
// works on may be in use.
tl::unexpected<Error> LeftInFlight(const BackendContext& context, Error error);

// Makes the call at a place of its own, so that it may come at the same time as others.
template <typename Call>
Result<cotune_status_t> InvokeApart(const BackendContext& context, const CallSubject& subject,
                                    const char* function, int64_t deadline_ns,
                                    std::function<void()> abort, const Call& call) {
  CallSlot slot(context.watchdog, std::move(abort));
  return Invoke(context, slot, subject, function, deadline_ns, call);
}

// Says in the log, once for each function, what a call that gives nothing back threw.
void LogFailure(const BackendContext& context, const char* function, const Error& error);

// Makes a call that gives nothing back; what it throws is only logged.
template <typename Call>
void InvokeWithoutAnswer(const BackendContext& context, const CallSubject& subject,
                         const char* function, const Call& call) {
  const Result<cotune_status_t> done = InvokeApart(
      context, subject, function, context.DeadlineOfCall(), nullptr, [&]() -> cotune_status_t {
        call();
        return COTUNE_OK;
      });
  if (!done) LogFailure(context, function, done.error());
}

}  // namespace cotune

#endif  // COTUNE_PLUGINS_LOADER_PLUGIN_CALL_H_
