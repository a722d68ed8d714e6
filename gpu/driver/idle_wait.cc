#include "gpu/driver/idle_wait.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace cotune::gpu {
namespace {

// A wait looks at the host's clock again after this time.
constexpr int64_t kLookNs = 20'000'000;

}  // namespace

std::optional<CuResult> IdleWait::Await(const NowNs& now_ns, int64_t deadline_ns) {
  const std::lock_guard await_lock(await_mutex_);
  // The work that an earlier wait was given up on runs in front of this wait's.
  const auto earlier = GivenUp();
  if (earlier != nullptr && !AwaitEnd(*earlier, now_ns, deadline_ns)) return std::nullopt;
  const auto wait = Start();
  const auto result = AwaitEnd(*wait, now_ns, deadline_ns);
  const std::lock_guard lock(mutex_);
  given_up_ = result ? nullptr : wait;
  return result;
}

bool IdleWait::IsPending() const {
  const auto wait = GivenUp();
  if (wait == nullptr) return false;
  const std::lock_guard lock(wait->mutex);
  return !wait->result;
}

std::shared_ptr<IdleWait::Wait> IdleWait::GivenUp() const {
  const std::lock_guard lock(mutex_);
  return given_up_;
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
    wait->changed.notify_one();
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
  return wait.result;
}

}  // namespace cotune::gpu
