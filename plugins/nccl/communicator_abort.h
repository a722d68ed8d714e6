// The abort of one NCCL communicator, in bounded time.
#ifndef COTUNE_PLUGINS_NCCL_COMMUNICATOR_ABORT_H_
#define COTUNE_PLUGINS_NCCL_COMMUNICATOR_ABORT_H_

#include <chrono>
#include <memory>
#include <optional>

#include "gpu/driver/cuda_driver.h"
#include "plugins/nccl/nccl_abi.h"

namespace cotune::nccl {

// The context that NCCL's calls of an ending run in; the driver is a copy.
struct AbortContext {
  gpu::CudaDriver driver;
  gpu::CuContext context = nullptr;
};

// One call of ncclCommAbort on a thread of its own. The call first has the kernels of the
// communicator leave, those of replayed CUDA graphs included. It returns when the communicator is
// freed, and that can be never: NCCL waits for every CUDA graph that has captured a call of the
// communicator to be destroyed, and for its streams. The thread outlives this object then and uses
// nothing but NCCL, the driver and `kept`. One thread at a time.
class CommunicatorAbort {
 public:
  using Function = NcclResult (*)(NcclComm comm);

  // Nothing to abort: freed.
  CommunicatorAbort() = default;
  // Nothing else calls NCCL about `comm` from here on. `kept` lives until the abort has returned:
  // NCCL may still write there.
  CommunicatorAbort(Function abort, NcclComm comm, std::optional<AbortContext> context,
                    std::shared_ptr<void> kept);

  // Returns whether the communicator is freed; waits for that until `end`.
  bool Await(std::chrono::steady_clock::time_point end) const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // null: freed
};

// Longest wait for an abort. NCCL takes half a second on a busy host.
inline constexpr std::chrono::seconds kAbortReturns(2);

// Longest wait of the exit of the process for aborts that have not returned. After its last CUDA
// graph is destroyed, NCCL takes up to 2.4 s (2 H100, NCCL 2.28.9) to free a communicator.
inline constexpr std::chrono::seconds kExitWaits(5);

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_COMMUNICATOR_ABORT_H_
