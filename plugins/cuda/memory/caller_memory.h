// Memory of callers as ranks show it to each other.
#ifndef COTUNE_PLUGINS_CUDA_MEMORY_CALLER_MEMORY_H_
#define COTUNE_PLUGINS_CUDA_MEMORY_CALLER_MEMORY_H_

#include <cstdint>

#include "plugins/cuda/memory/gpu.h"
#include "plugins/sdk/descriptor.h"
#include "plugins/sdk/failure.h"

namespace cotune::cuda {

using sdk::Descriptor;

// A caller's memory, exported. The descriptor keeps it alive.
struct ExportedMemory {
  Descriptor descriptor;
  uint64_t allocation_bytes = 0;
  uint64_t offset = 0;  // of the caller's memory in its allocation
};

// COTUNE_UNSUPPORTED: it is not one mapping (cuMemMap) of an allocation that can be exported as a
// file descriptor, as memory of cudaMalloc is. The context is current.
sdk::Result<ExportedMemory> ExportMemory(const Gpu& gpu, void* data, uint64_t bytes);

// A peer's allocation in this process, for as long as the object lives; the memory lives as long,
// also when the peer is gone. The context is current where it is made and destroyed.
class PeerMapping {
 public:
  // COTUNE_UNSUPPORTED: this GPU does not reach that one. The Gpu outlives it.
  static sdk::Result<PeerMapping> Map(const Gpu& gpu, const Descriptor& descriptor,
                                      uint64_t allocation_bytes);
  ~PeerMapping();
  PeerMapping(PeerMapping&& other) noexcept;
  PeerMapping& operator=(PeerMapping&&) = delete;

  unsigned char* data() const { return reinterpret_cast<unsigned char*>(data_); }

 private:
  PeerMapping(const Gpu& gpu, uint64_t bytes) : gpu_(&gpu), bytes_(bytes) {}

  const Gpu* gpu_;
  uint64_t bytes_;
  gpu::CuDevicePointer data_ = 0;  // reserved addresses; 0: none
  bool is_mapped_ = false;
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_MEMORY_CALLER_MEMORY_H_
