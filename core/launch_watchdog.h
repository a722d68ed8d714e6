// Frees this rank from a launch that does not honour its deadline.
#ifndef COTUNE_CORE_LAUNCH_WATCHDOG_H_
#define COTUNE_CORE_LAUNCH_WATCHDOG_H_

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "core/backend.h"
#include "core/clock.h"

namespace cotune {

// One thread that aborts the watched group when its time has passed. Watch and Unwatch are for one
// thread.
class LaunchWatchdog {
 public:
  explicit LaunchWatchdog(const Clock& clock);
  ~LaunchWatchdog();
  LaunchWatchdog(const LaunchWatchdog&) = delete;
  LaunchWatchdog& operator=(const LaunchWatchdog&) = delete;

  // Aborts `group` once when Unwatch has not come by deadline_ns.
  void Watch(BackendGroup& group, int64_t deadline_ns);
  void Unwatch();

 private:
  void Loop();

  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable changed_;
  BackendGroup* group_ = nullptr;
  int64_t deadline_ns_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace cotune

#endif  // COTUNE_CORE_LAUNCH_WATCHDOG_H_
