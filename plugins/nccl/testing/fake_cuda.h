// A library that stands in for libcuda.so.1: enough of a driver for NCCL's backend, and for
// a job of one rank.
#ifndef COTUNE_PLUGINS_NCCL_TESTING_FAKE_CUDA_H_
#define COTUNE_PLUGINS_NCCL_TESTING_FAKE_CUDA_H_

#include <atomic>
#include <climits>
#include <mutex>
#include <utility>
#include <vector>

#include "gpu/driver/cuda_types.h"
#include "plugins/api/cotune_backend_v1.h"

namespace cotune::nccl {

struct FakeCudaState {
  std::atomic<int> gpus{8};
  std::atomic<bool> is_busy{false};       // streams and events are not complete
  std::atomic<bool> is_capturing{false};  // every stream
  // The one buffer whose memory other processes can map.
  std::atomic<const void*> exportable{nullptr};
  std::atomic<int> contexts_held{0};
  std::atomic<int> objects{0};  // streams, events and memory that live
  std::atomic<int> events_recorded{0};
  std::atomic<int> records_complete{INT_MAX};  // the later ones are not, whatever is_busy says
  std::atomic<int> event_queries{0};           // notifies
  // Events asked for in a mode in which that breaks what another thread captures.
  std::atomic<int> unsafe_queries{0};

  // Lets go of all that captured graphs hold, as the driver does once they are destroyed.
  void DestroyGraphs() {
    std::vector<std::pair<gpu::CuHostFunction, void*>> held;
    {
      const std::lock_guard lock(mutex);
      held.swap(held_by_graphs);
    }
    for (const auto& [destroy, data] : held) destroy(data);
  }

  std::mutex mutex;
  std::atomic<unsigned long long> captures{0};  // that were asked for; each has another number
  std::vector<std::pair<gpu::CuHostFunction, void*>> held_by_graphs;
};

}  // namespace cotune::nccl

extern "C" COTUNE_EXPORT cotune::nccl::FakeCudaState* fake_cuda_state();

#endif  // COTUNE_PLUGINS_NCCL_TESTING_FAKE_CUDA_H_
