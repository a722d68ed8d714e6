// A library that stands in for libcuda.so.1: a GPU that does nothing, and may be kept from coming
// to an end.
#ifndef COTUNE_PLUGINS_CUDA_TESTING_FAKE_DRIVER_H_
#define COTUNE_PLUGINS_CUDA_TESTING_FAKE_DRIVER_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"

namespace cotune::cuda {

// An operation on a stream.
struct FakeOperation {
  enum class Kind : uint8_t { kKernel, kCopy, kRecord, kWait };
  Kind kind = Kind::kKernel;
  const void* stream = nullptr;
  const void* event = nullptr;  // that it records or waits for
  int label = 0;                // of a kernel: see label_of_kernel
  uint64_t to = 0;              // of a copy
  uint64_t bytes = 0;
};

struct FakeDriverState {
  std::atomic<bool> is_busy{false};  // a kernel runs; notifies
  std::atomic<int> waits{0};         // cuCtxSynchronize, so far
  std::atomic<int> waiting{0};       // threads that are in it; notifies
  std::atomic<int> wait_result{0};
  std::atomic<int> allocated{0};     // device memory that lives
  std::atomic<bool> is_full{false};  // no device memory is left
  std::atomic<int> host_allocated{0};
  std::atomic<int> contexts{0};
  std::atomic<int> freed_while_busy{0};      // calls for which the real driver would wait
  std::atomic<int> kernels{0};               // launched so far
  std::atomic<unsigned int> last_blocks{0};  // of the last one
  std::atomic<int> copies{0};                // on the device, enqueued so far
  // The first operations. In fixed memory, since tests count what a launch allocates. Read when no
  // other thread enqueues.
  std::array<FakeOperation, 256> operations;
  size_t operation_count = 0;          // those without a place count, too
  int operations_before_failure = -1;  // the next one fails and is not kept; -1: none does
  int (*label_of_kernel)(void** parameters) = nullptr;
  // Reads from the device give these: the words that peers set when they leave a group.
  std::array<unsigned int, 8> words_on_device{};
  // Every stream is captured, each time this changes in a graph of its own; 0: none is.
  unsigned long long capture = 0;
  // Objects that graphs hold, with the functions that let go of them. One thread.
  std::vector<std::pair<void*, void (*)(void*)>> held_by_graphs;
};

}  // namespace cotune::cuda

extern "C" COTUNE_EXPORT cotune::cuda::FakeDriverState* fake_driver_state();

#endif  // COTUNE_PLUGINS_CUDA_TESTING_FAKE_DRIVER_H_
