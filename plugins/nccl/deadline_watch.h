// Ends what does not end itself.
#ifndef COTUNE_PLUGINS_NCCL_DEADLINE_WATCH_H_
#define COTUNE_PLUGINS_NCCL_DEADLINE_WATCH_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <utility>

namespace cotune::nccl {

// Calls `end` when the deadline passes before this object goes.
class DeadlineWatch {
 public:
  template <class End>
  DeadlineWatch(int64_t left_ns, End end)
      : thread_([this, left_ns, end = std::move(end)] {
          std::unique_lock lock(mutex_);
          const auto left = std::chrono::nanoseconds(std::max<int64_t>(left_ns, 0));
          if (!changed_.wait_for(lock, left, [this] { return is_over_; })) end();
        }) {}
  ~DeadlineWatch() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }
  DeadlineWatch(const DeadlineWatch&) = delete;
  DeadlineWatch& operator=(const DeadlineWatch&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_DEADLINE_WATCH_H_
