#include "gpu/driver/idle_wait.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace cotune::gpu {
namespace {

// How long a wait goes on before it looks at the host's clock.
constexpr int64_t kLookNs = 20'000'000;

}  // namespace

std::optional<CuResult> IdleWait::Await(const NowNs& now_ns, int64_t deadline_ns) {
  // A wait that is under way may have begun before the caller's last work was enqueued. Whichever
  // comes after it begins after this call.
  for (bool is_second = false;; is_second = true) {
    const auto [wait, is_new] = Join();
    const auto result = AwaitEnd(*wait, now_ns, deadline_ns);
    if (!result || is_new || is_second) return result;
  }
}

bool IdleWait::IsPending() const {
  const std::lock_guard lock(mutex_);
  if (latest_ == nullptr) return false;
  const std::lock_guard wait_lock(latest_->mutex);
  return latest_->was_given_up && !latest_->result;
}

std::pair<std::shared_ptr<IdleWait::Wait>, bool> IdleWait::Join() {
  const std::lock_guard lock(mutex_);
  if (latest_ != nullptr) {
    const std::lock_guard wait_lock(latest_->mutex);
    if (!latest_->result) return {latest_, false};
  }
  latest_ = Start();
  return {latest_, true};
}

std::shared_ptr<IdleWait::Wait> IdleWait::Start() const {
  auto wait = std::make_shared<Wait>();
  // It owns all that it uses: nobody joins it.
  std::thread([wait, driver = driver_, context = context_] {
    const CurrentContext current(driver, context);
    const RelaxedCaptureMode relaxed(driver);
    const CuResult result = driver->ContextSynchronize();
    const std::lock_guard lock(wait->mutex);
    wait->result = result;
    wait->changed.notify_all();
  }).detach();
  return wait;
}

std::optional<CuResult> IdleWait::AwaitEnd(Wait& wait, const NowNs& now_ns, int64_t deadline_ns) {
  std::unique_lock lock(wait.mutex);
  while (!wait.result) {
    const int64_t left_ns = deadline_ns - now_ns();
    if (left_ns <= 0) break;
    wait.changed.wait_for(lock, std::chrono::nanoseconds(std::min(left_ns, kLookNs)));
  }
  if (!wait.result) wait.was_given_up = true;
  return wait.result;
}

}  // namespace cotune::gpu
