// Device memory that other processes can map.
#ifndef COTUNE_GPU_DEVICE_SHAREABLE_MEMORY_H_
#define COTUNE_GPU_DEVICE_SHAREABLE_MEMORY_H_

#include <cstdint>

#include "core/base/status.h"
#include "gpu/driver/cuda_driver.h"

namespace cotune::gpu {

// One allocation of the driver's virtual memory functions, mapped in one piece, that can be
// exported as a POSIX file descriptor: what NCCL's windows and peers in other processes take.
// Movable; the context of the device is current where it is made and freed.
class ShareableMemory {
 public:
  // At least `bytes`, rounded up to the granularity of the device. kEnvironment: none is left;
  // kUnsupported: the device or the system cannot export memory. The driver outlives it.
  static Result<ShareableMemory> Allocate(const CudaDriver& driver, CuDevice device,
                                          uint64_t bytes);
  ~ShareableMemory();
  // Leaves all that it has to the process: the end frees nothing.
  void Abandon() { data_ = 0; }
  ShareableMemory(ShareableMemory&& other) noexcept;
  ShareableMemory& operator=(ShareableMemory&&) = delete;

  CuDevicePointer data() const { return data_; }

 private:
  ShareableMemory(const CudaDriver& driver, uint64_t bytes) : driver_(&driver), bytes_(bytes) {}
  Status Map(CuDevice device, CuMemGenericHandle handle, uint64_t granularity_bytes);

  const CudaDriver* driver_;
  uint64_t bytes_;            // mapped
  CuDevicePointer data_ = 0;  // reserved addresses; 0: none
  bool is_mapped_ = false;
};

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DEVICE_SHAREABLE_MEMORY_H_
