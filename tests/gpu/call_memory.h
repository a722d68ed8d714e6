// Memory and streams as a program that links libcotune has them: the host's, or a GPU's.
#ifndef COTUNE_TESTS_GPU_CALL_MEMORY_H_
#define COTUNE_TESTS_GPU_CALL_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "gpu/driver/cuda_driver.h"

namespace cotune::gputest {

// One thread. What it hands out goes before it.
class CallMemory {
 public:
  // ordinal: of the GPU, whose primary context becomes current on this thread; -1: host memory.
  static Result<std::unique_ptr<CallMemory>> Open(int ordinal);
  ~CallMemory();
  CallMemory(const CallMemory&) = delete;
  CallMemory& operator=(const CallMemory&) = delete;

  bool is_cuda() const { return driver_.has_value(); }
  // Lives as long as this.
  Result<void*> Allocate(uint64_t bytes);
  // The same in memory that other processes can map, as cotune_memory_register takes it; on CUDA
  // memory.
  Result<void*> AllocateMapped(uint64_t bytes);
  // Returns how many bytes of the GPU are free; on CUDA memory.
  Result<uint64_t> FreeBytes();
  Status Write(void* to, std::span<const std::byte> data);
  Result<std::vector<std::byte>> Read(const void* from, uint64_t bytes);

  // A stream of its own, nullptr for host memory; lives as long as this.
  Result<void*> MakeStream();
  // Whether everything that the stream holds is done.
  Result<bool> IsDone(void* stream);
  // Waits for it as programs do, without a deadline. What went wrong there is not known to it.
  Status Synchronize(void* stream);
  // Puts a kernel into the stream that does nothing for so long; on CUDA memory.
  Status Spin(void* stream, int64_t duration_ns);

  // Makes the work that `enqueue` puts into the stream repeatable. On host memory `enqueue` itself.
  // Replay runs it and does not wait; graphs go with the last copy of it.
  using Replay = std::function<Status()>;
  Result<Replay> Capture(void* stream, const std::function<Status()>& enqueue);

 private:
  CallMemory() = default;
  Status Check(gpu::CuResult code, const char* call) const;

  std::optional<gpu::CudaDriver> driver_;
  gpu::CuDevice device_ = 0;
  gpu::CuContext context_ = nullptr;
  std::vector<gpu::CuDevicePointer> allocated_;
  std::vector<std::pair<gpu::CuDevicePointer, uint64_t>> mapped_;
  std::vector<gpu::CuStream> streams_;
  std::vector<gpu::CuModule> modules_;
  std::vector<std::unique_ptr<std::byte[]>> on_host_;
};

}  // namespace cotune::gputest

#endif  // COTUNE_TESTS_GPU_CALL_MEMORY_H_
