// A stream beside a caller's, for work that may run at the same time as what follows there.
#ifndef COTUNE_PLUGINS_CUDA_MEMORY_SIDE_STREAM_H_
#define COTUNE_PLUGINS_CUDA_MEMORY_SIDE_STREAM_H_

#include <cstdint>
#include <memory>

#include "plugins/cuda/memory/gpu.h"
#include "plugins/sdk/failure.h"

namespace cotune::cuda {

// The capture that a stream is part of.
struct StreamCapture {
  enum class State : uint8_t { kNone, kActive, kInvalidated };
  State state = State::kNone;
  unsigned long long id = 0;  // of an active one; unique in a process
};

// Whether work on `stream` may go on beside it on a stream that is part of `side`: a stream belongs
// to its capture until that ends, also after it was joined. Pure.
bool CanFork(const StreamCapture& side, const StreamCapture& stream);

// One thread at a time; all but the end with the GPU's context current. The GPU outlives it.
class SideStream {
 public:
  static sdk::Result<std::unique_ptr<SideStream>> Make(const Gpu& gpu);
  // Queued work still runs to its end. A stream that is part of a capture which has not ended is
  // left to the process.
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  // The stream for work that follows all that is on `stream` now; until Join only `stream` may
  // fork, once more or several times. `stream` itself, which is right too, where CanFork says no.
  sdk::Result<gpu::CuStream> Fork(gpu::CuStream stream);
  // Work that is queued on `stream` from here on follows all that was queued since Fork.
  sdk::Result<void> Join(gpu::CuStream stream);

 private:
  explicit SideStream(const Gpu& gpu) : gpu_(gpu) {}

  const Gpu& gpu_;
  gpu::CuStream stream_ = nullptr;
  gpu::CuEvent event_ = nullptr;
  bool is_forked_ = false;
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_MEMORY_SIDE_STREAM_H_
