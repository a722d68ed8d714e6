// The driver's wait for everything on a GPU, with a deadline.
#ifndef COTUNE_GPU_DRIVER_IDLE_WAIT_H_
#define COTUNE_GPU_DRIVER_IDLE_WAIT_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "gpu/driver/cuda_driver.h"

namespace cotune::gpu {

// cuCtxSynchronize waits for the streams of all libraries in the process, which no event does, and
// it has no deadline: a kernel that never ends keeps its caller for ever. So it runs on a thread of
// its own, which stays behind when the wait is given up; there is one such thread at most. Any
// thread. The context outlives every wait that has not ended.
class IdleWait {
 public:
  IdleWait(const CudaDriver& driver, CuContext context) : driver_(driver), context_(context) {}
  IdleWait(const IdleWait&) = delete;
  IdleWait& operator=(const IdleWait&) = delete;

  // Waits for all work that was enqueued before the call, and returns the driver's result of it;
  // none when that work has not ended by the deadline, on the caller's clock.
  using NowNs = std::function<int64_t()>;
  std::optional<CuResult> Await(const NowNs& now_ns, int64_t deadline_ns);
  // A wait was given up and has not ended since.
  bool IsPending() const;

 private:
  struct Wait {
    std::mutex mutex;
    std::condition_variable changed;
    std::optional<CuResult> result;
  };
  static std::optional<CuResult> AwaitEnd(Wait& wait, const NowNs& now_ns, int64_t deadline_ns);
  std::shared_ptr<Wait> Start() const;
  std::shared_ptr<Wait> GivenUp() const;

  const CudaDriver driver_;
  const CuContext context_;
  std::mutex await_mutex_;    // held during a wait
  mutable std::mutex mutex_;  // for given_up_
  std::shared_ptr<Wait> given_up_;
};

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DRIVER_IDLE_WAIT_H_
