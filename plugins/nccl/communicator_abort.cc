#include "plugins/nccl/communicator_abort.h"

#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace cotune::nccl {

struct CommunicatorAbort::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;
};

CommunicatorAbort::CommunicatorAbort(Function abort, NcclComm comm,
                                     std::optional<AbortContext> context,
                                     std::shared_ptr<void> kept) {
  if (comm == nullptr) return;
  state_ = std::make_shared<State>();
  auto run = [state = state_, abort, comm, context, kept = std::move(kept)] {
    if (context) {
      // Another thread of the process may be capturing a graph.
      const gpu::CurrentContext current(context->driver, context->context);
      const gpu::RelaxedCaptureMode relaxed(context->driver);
      abort(comm);
    } else {
      abort(comm);
    }
    {
      const std::lock_guard lock(state->mutex);
      state->is_done = true;
    }
    state->changed.notify_all();
  };
  try {
    std::thread(run).detach();
  } catch (const std::system_error&) {
    // Kernels that wait for a peer have to leave even without a thread for it.
    run();
  }
}

bool CommunicatorAbort::Await(std::chrono::steady_clock::time_point end) const {
  if (state_ == nullptr) return true;
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, end, [this] { return state_->is_done; });
}

}  // namespace cotune::nccl
