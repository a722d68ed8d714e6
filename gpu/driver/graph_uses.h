// Knowledge of the CUDA graphs that use something: whether any of them still lives.
#ifndef COTUNE_GPU_DRIVER_GRAPH_USES_H_
#define COTUNE_GPU_DRIVER_GRAPH_USES_H_

#include <atomic>
#include <cstdint>
#include <memory>

#include "gpu/driver/cuda_driver.h"

namespace cotune::gpu {

// If `stream` is being captured, the graph of the capture keeps `held`, and so do its clones and
// all that is instantiated from them, until the last of them is destroyed (a user object of CUDA).
// The driver lets go of it on a thread of its own, on which none of its functions may be called:
// the last owner of `held` frees nothing of the GPU. Returns the number of the capture, which is
// unique in the process, or 0 if there is none. Nothing more is held for the capture `known`. The
// context is current.
DriverResult<uint64_t> HoldInGraph(const CudaDriver& driver, CuStream stream, uint64_t known,
                                   const std::shared_ptr<const void>& held);

// Counts the graphs that use one thing. Add: any thread.
class GraphUses {
 public:
  GraphUses() = default;
  GraphUses(const GraphUses&) = delete;
  GraphUses& operator=(const GraphUses&) = delete;

  // Work on the stream uses it. If the driver cannot hold it for the graph, the use never ends.
  void Add(const CudaDriver& driver, CuStream stream);
  // Returns true while a graph lives that uses it.
  bool IsAny() const { return is_lasting_ || count_.use_count() > 1; }
  // The same for an end that frees what graphs use: the driver lets go some time after a graph was
  // destroyed, which this waits for, 0.1 s at most.
  bool IsAnyAtEnd() const;

 private:
  std::shared_ptr<const int> count_ = std::make_shared<const int>(0);
  std::atomic<uint64_t> last_capture_{0};
  std::atomic<bool> is_lasting_{false};
};

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DRIVER_GRAPH_USES_H_
