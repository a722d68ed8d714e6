// The driver's wait for everything on a GPU, with a deadline.
#ifndef COTUNE_GPU_DRIVER_IDLE_WAIT_H_
#define COTUNE_GPU_DRIVER_IDLE_WAIT_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "gpu/driver/cuda_driver.h"

namespace cotune::gpu {

// cuCtxSynchronize waits for the streams of all libraries in the process, which no event does, and
// it has no deadline: a kernel that never ends keeps its caller for ever. So it runs on a thread of
// its own, which stays behind when the wait is given up; there is one such thread at most, which
// all callers wait for, each until its own deadline. Any thread. The context outlives every wait
// that has not ended.
class IdleWait {
 public:
  IdleWait(const CudaDriver& driver, CuContext context) : driver_(driver), context_(context) {}
  IdleWait(const IdleWait&) = delete;
  IdleWait& operator=(const IdleWait&) = delete;

  // Waits for all work that was enqueued before the call, and returns the driver's result of it;
  // none when that work has not ended by the deadline, on the caller's clock, however long other
  // callers wait.
  using NowNs = std::function<int64_t()>;
  std::optional<CuResult> Await(const NowNs& now_ns, int64_t deadline_ns);
  // A caller has given the wait up, and it has not ended since.
  bool IsPending() const;

 private:
  struct Wait {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<CuResult> result;
    bool was_given_up = false;  // by one of its callers
  };
  static std::optional<CuResult> AwaitEnd(Wait& wait, const NowNs& now_ns, int64_t deadline_ns);
  std::shared_ptr<Wait> Start() const;
  // The wait that is under way, or a new one; whether it is new.
  std::pair<std::shared_ptr<Wait>, bool> Join();

  const CudaDriver driver_;
  const CuContext context_;
  mutable std::mutex mutex_;      // for latest_; held for a moment only
  std::shared_ptr<Wait> latest_;  // nullptr before the first
};

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DRIVER_IDLE_WAIT_H_
