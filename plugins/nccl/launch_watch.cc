#include "plugins/nccl/launch_watch.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace cotune::nccl {
namespace {

// The clocks of waits do not take every number.
constexpr int64_t kLongestSleepNs = int64_t{3600} * 1'000'000'000;

}  // namespace

LaunchWatch::~LaunchWatch() {
  Stop();
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  if (spare_ != nullptr) gpu_.driver()->EventDestroy(spare_);
  for (const Slot& slot : slots_) {
    if (slot.event != nullptr) gpu_.driver()->EventDestroy(slot.event);
  }
}

Result<void> LaunchWatch::MakeEvents() {
  const auto make = [&](gpu::CuEvent* event) {
    return gpu_.Check(gpu_.driver()->EventCreate(event, gpu::kCuEventDisableTiming),
                      "cuEventCreate");
  };
  auto done = make(&spare_);
  for (Slot& slot : slots_) {
    if (done) done = make(&slot.event);
  }
  return done;
}

void LaunchWatch::Start() {
  const std::lock_guard lock(mutex_);
  if (is_over_ || thread_.joinable()) return;
  thread_ = std::thread([this] { Run(); });
}

void LaunchWatch::Stop() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

// The record is made without the lock: where the stream takes no more work it blocks, and the
// thread that ends that has to get the lock.
Result<void> LaunchWatch::Add(const Launch& launch, gpu::CuStream stream) {
  auto done = gpu_.Check(gpu_.driver()->EventRecord(spare_, stream), "cuEventRecord");
  if (!done) return done;
  bool wakes = false;
  {
    const std::lock_guard lock(mutex_);
    if (count_ == kSlots) DropOldestHalfIfComplete();
    const bool is_shared = count_ == kSlots;
    if (!is_shared) ++count_;
    Slot& slot = At(count_ - 1);
    const int64_t shared_deadline_ns = is_shared ? slot.launch.deadline_ns : launch.deadline_ns;
    std::swap(slot.event, spare_);
    slot.launch = launch;
    if (!is_shared) slot.first_number = launch.number;
    slot.launch.deadline_ns = std::max(launch.deadline_ns, shared_deadline_ns);
    wakes = slot.launch.deadline_ns < wakes_at_ns_;
    if (wakes) wakes_at_ns_ = slot.launch.deadline_ns;
  }
  if (wakes) changed_.notify_one();
  return {};
}

// Launches of a group run one after the other.
void LaunchWatch::DropOldestHalfIfComplete() {
  const gpu::RelaxedCaptureMode relaxed(gpu_.driver());
  if (gpu_.driver()->EventQuery(At(kSlots / 2 - 1).event) != gpu::kCuSuccess) return;
  first_ = (first_ + kSlots / 2) % kSlots;
  count_ -= kSlots / 2;
}

void LaunchWatch::DropComplete() {
  while (count_ > 0) {
    const gpu::CuResult code = gpu_.driver()->EventQuery(At(0).event);
    if (code == gpu::kCuErrorNotReady) return;
    if (code != gpu::kCuSuccess) {
      error_ = code;
      count_ = 0;
      return;
    }
    first_ = (first_ + 1) % kSlots;
    --count_;
  }
}

LaunchWatch::State LaunchWatch::Look() {
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  const gpu::RelaxedCaptureMode relaxed(gpu_.driver());
  const std::lock_guard lock(mutex_);
  return LookLocked();
}

LaunchWatch::State LaunchWatch::LookLocked() {
  DropComplete();
  State state;
  state.error = error_;
  state.is_idle = count_ == 0 && error_ == gpu::kCuSuccess;
  if (count_ > 0) state.complete_launches = At(0).first_number - 1;
  const int64_t now_ns = NowNs();
  for (size_t i = 0; i < count_; ++i) {
    const Launch& launch = At(i).launch;
    if (launch.deadline_ns > now_ns) continue;
    if (!state.late || launch.deadline_ns < state.late->deadline_ns) state.late = launch;
  }
  return state;
}

void LaunchWatch::Run() {
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  const gpu::RelaxedCaptureMode relaxed(gpu_.driver());
  std::unique_lock lock(mutex_);
  while (!is_over_) {
    if (const State state = LookLocked(); state.late) {
      lock.unlock();
      end_(*state.late);
      return;
    }
    wakes_at_ns_ = kNever;
    for (size_t i = 0; i < count_; ++i) {
      wakes_at_ns_ = std::min(wakes_at_ns_, At(i).launch.deadline_ns);
    }
    if (wakes_at_ns_ == kNever) {
      changed_.wait(lock);
    } else {
      const int64_t left_ns = std::clamp<int64_t>(wakes_at_ns_ - NowNs(), 0, kLongestSleepNs);
      changed_.wait_for(lock, std::chrono::nanoseconds(left_ns));
    }
  }
}

}  // namespace cotune::nccl
