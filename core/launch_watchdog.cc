#include "core/launch_watchdog.h"

#include <chrono>

namespace cotune {
namespace {

// How late an abort may come. A Watch does not wake the thread, so that it costs a lock only.
constexpr std::chrono::milliseconds kPeriod(50);

}  // namespace

LaunchWatchdog::LaunchWatchdog(const Clock& clock) : clock_(clock), thread_([this] { Loop(); }) {}

LaunchWatchdog::~LaunchWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void LaunchWatchdog::Watch(BackendGroup& group, int64_t deadline_ns) {
  const std::lock_guard lock(mutex_);
  group_ = &group;
  deadline_ns_ = deadline_ns;
}

void LaunchWatchdog::Unwatch() {
  const std::lock_guard lock(mutex_);
  group_ = nullptr;
}

void LaunchWatchdog::Loop() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    changed_.wait_for(lock, kPeriod);
    if (group_ == nullptr || clock_.now_ns() < deadline_ns_) continue;
    // The lock is held: the group cannot be destroyed before Unwatch returns. Abort takes bounded
    // time.
    group_->Abort();
    group_ = nullptr;
  }
}

}  // namespace cotune
