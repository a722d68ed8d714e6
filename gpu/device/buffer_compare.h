// Whether two pieces of a GPU's memory hold the same bytes, found out by the GPU.
#ifndef COTUNE_GPU_DEVICE_BUFFER_COMPARE_H_
#define COTUNE_GPU_DEVICE_BUFFER_COMPARE_H_

#include <cstdint>
#include <memory>

#include "core/base/status.h"
#include "gpu/device/cuda_stream.h"
#include "gpu/driver/cuda_driver.h"

namespace cotune::gpu {

// One thread, with the device's context current on it. The driver outlives it.
class BufferCompare {
 public:
  static Result<std::unique_ptr<BufferCompare>> Create(const CudaDriver& driver);
  ~BufferCompare();
  // Leaves all that it has to the process: the end frees nothing.
  void Abandon();
  BufferCompare(const BufferCompare&) = delete;
  BufferCompare& operator=(const BufferCompare&) = delete;

  // Waits for what the stream holds. Both pointers are aligned to 16 bytes. kDeadline: see
  // CudaStream.
  Result<bool> Equal(CudaStream& stream, CuDevicePointer left, CuDevicePointer right,
                     uint64_t bytes, int64_t deadline_ns);

 private:
  explicit BufferCompare(const CudaDriver& driver) : driver_(driver) {}

  const CudaDriver& driver_;
  CuModule module_ = nullptr;
  CuFunction kernel_ = nullptr;
  volatile uint32_t* differs_ = nullptr;  // in host memory that the device maps
  CuDevicePointer differs_on_device_ = 0;
};

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DEVICE_BUFFER_COMPARE_H_
