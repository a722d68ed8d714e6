#include "plugins/nccl/communicator_abort.h"

#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace cotune::nccl {
namespace {

// Counts the aborts of this process that have not returned, and lets its exit wait for them. While
// a thread frees a communicator, exit would end the state of NCCL and of the driver that it uses:
// the process would crash. The object is never destroyed, because such a thread may outlive exit.
class UnfinishedAborts {
 public:
  static UnfinishedAborts& OfProcess() {
    static UnfinishedAborts& aborts = *new UnfinishedAborts();
    return aborts;
  }
  void Begin() {
    // NCCL and the driver are loaded by now: exit calls this before what they have registered.
    static const int registered = std::atexit([] { OfProcess().AwaitAll(); });
    static_cast<void>(registered);
    const std::lock_guard lock(mutex_);
    process_ = getpid();
    ++count_;
  }
  void End() {
    const std::lock_guard lock(mutex_);
    --count_;
    changed_.notify_all();
  }

 private:
  void AwaitAll() {
    std::unique_lock lock(mutex_);
    // A forked child has the count, and not the threads.
    if (process_ != getpid()) return;
    changed_.wait_for(lock, kExitWaits, [this] { return count_ == 0; });
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
  pid_t process_ = 0;
};

}  // namespace

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
    { const std::lock_guard is_detached(state->mutex); }
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
    UnfinishedAborts::OfProcess().End();
  };
  UnfinishedAborts::OfProcess().Begin();
  try {
    // The thread begins when it is detached: detaching one that has ended frees what is its own.
    const std::lock_guard lock(state_->mutex);
    std::thread(run).detach();
    return;
  } catch (const std::system_error&) {
  }
  // Kernels that wait for a peer have to leave even without a thread for it.
  run();
}

bool CommunicatorAbort::Await(std::chrono::steady_clock::time_point end) const {
  if (state_ == nullptr) return true;
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(lock, end, [this] { return state_->is_done; });
}

}  // namespace cotune::nccl
