// Which launches of a group have not run to their end, and what is done about one that is late.
#ifndef COTUNE_PLUGINS_NCCL_LAUNCH_WATCH_H_
#define COTUNE_PLUGINS_NCCL_LAUNCH_WATCH_H_

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/nccl/sdk_names.h"
#include "plugins/sdk/gpu/gpu.h"

namespace cotune::nccl {

using sdk::Gpu;

// An event behind every launch, and a thread that looks at the earliest deadline when it has
// passed. The kernels of NCCL do not look at any clock, so without that thread a program that waits
// for its stream would wait for a dead rank for ever.
//
// The events are made once, for kSlots launches that are on their method. When more are, the newest
// ones share an event and the latest of their deadlines. The thread is asleep until a deadline; a
// launch wakes it only where its own deadline is earlier than what the thread sleeps for, which is
// at most once in the time that a call may take. It never runs while nothing is on its method.
class LaunchWatch {
 public:
  struct Launch {
    Collective collective = Collective::kAllReduce;
    uint64_t bytes = 0;
    uint64_t number = 0;  // of the group's launches on this rank, from 1 on
    int64_t deadline_ns = 0;
  };
  // The state of the launches so far.
  struct State {
    bool is_idle = true;
    // All launches up to this number are complete, those that were captured aside.
    uint64_t complete_launches = std::numeric_limits<uint64_t>::max();
    std::optional<Launch> late;             // the one that should have ended first
    gpu::CuResult error = gpu::kCuSuccess;  // of the context, for good: nothing is known any more
  };

  // `end` is called at most once, on the watch's thread, with the launch that is late; Stop waits
  // for it. GPU and host outlive the watch.
  LaunchWatch(const Gpu& gpu, const cotune_host_t& host, std::function<void(const Launch&)> end)
      : gpu_(gpu), host_(host), end_(std::move(end)) {}
  // As Stop.
  ~LaunchWatch();
  LaunchWatch(const LaunchWatch&) = delete;
  LaunchWatch& operator=(const LaunchWatch&) = delete;

  // Makes the events; before everything else.
  Result<void> MakeEvents();
  // Starts the thread where it does not run. Any thread, but not where a launch may be.
  void Start();
  // [hot] Behind a launch: one record of an event, one lock that nobody else holds for long, and,
  // where the slots are in use, one query in kSlots / 2 launches. One thread at a time.
  Result<void> Add(const Launch& launch, gpu::CuStream stream);
  // Any thread.
  State Look();
  // Ends the thread. Launches are still looked at, and nothing is done about them.
  void Stop();

 private:
  static constexpr size_t kSlots = 64;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

  struct Slot {
    gpu::CuEvent event = nullptr;
    Launch launch;
    uint64_t first_number = 0;  // of the launches that share the event
  };

  void Run();
  // These three with the lock held.
  State LookLocked();
  void DropComplete();
  void DropOldestHalfIfComplete();
  Slot& At(size_t index) { return slots_[(first_ + index) % kSlots]; }
  int64_t NowNs() const { return host_.now_ns(host_.context); }

  const Gpu& gpu_;
  const cotune_host_t& host_;
  const std::function<void(const Launch&)> end_;

  gpu::CuEvent spare_ = nullptr;  // for the next launch
  std::mutex mutex_;
  std::condition_variable changed_;
  // A ring: `count_` slots from `first_` on, in the order of their launches.
  std::array<Slot, kSlots> slots_;
  size_t first_ = 0;
  size_t count_ = 0;
  gpu::CuResult error_ = gpu::kCuSuccess;
  int64_t wakes_at_ns_ = kNever;  // what the thread sleeps for
  bool is_over_ = false;
  std::thread thread_;
};

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_LAUNCH_WATCH_H_
