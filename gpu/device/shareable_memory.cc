#include "gpu/device/shareable_memory.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "gpu/device/driver_status.h"

namespace cotune::gpu {
namespace {

CuMemAllocationProperties PropertiesOf(const CudaDriver& driver, CuDevice device) {
  CuMemAllocationProperties properties{};
  properties.type = kCuMemAllocationPinned;
  properties.requested_handle_types = kCuMemHandlePosixFd;
  properties.location = {kCuMemLocationDevice, device};
  int can_rdma = 0;
  // A network card may have to read it too; without one this costs nothing.
  const CuResult asked =
      driver->DeviceGetAttribute(&can_rdma, kCuGpuDirectRdmaWithVmmSupported, device);
  properties.gpu_direct_rdma_capable = asked == kCuSuccess && can_rdma != 0 ? 1 : 0;
  return properties;
}

}  // namespace

Result<ShareableMemory> ShareableMemory::Allocate(const CudaDriver& driver, CuDevice device,
                                                  uint64_t bytes) {
  int can_export = 0;
  const CuResult asked =
      driver->DeviceGetAttribute(&can_export, kCuPosixFdHandlesSupported, device);
  if (asked != kCuSuccess || can_export == 0) {
    return Fail(ErrorCode::kUnsupported, "this GPU has no memory that other processes can map", "",
                "the driver does not export memory as file descriptors here", "use plain buffers");
  }
  const CuMemAllocationProperties properties = PropertiesOf(driver, device);
  size_t granularity = 0;
  Status done = Checked(
      driver, driver->MemoryGetGranularity(&granularity, &properties, kCuMemGranularityRecommended),
      "cuMemGetAllocationGranularity");
  COTUNE_RETURN_IF_ERROR(done);
  const uint64_t mapped_bytes =
      (std::max<uint64_t>(bytes, 1) + granularity - 1) / granularity * granularity;
  CuMemGenericHandle handle = 0;
  const CuResult created = driver->MemoryCreate(&handle, mapped_bytes, &properties, 0);
  if (created == kCuErrorOutOfMemory) {
    return Fail(ErrorCode::kEnvironment,
                fmt::format("cannot allocate {} bytes that other ranks can map", mapped_bytes), "",
                "the GPU's memory is in use", "use smaller sizes, or see `nvidia-smi`");
  }
  done = Checked(driver, created, "cuMemCreate");
  COTUNE_RETURN_IF_ERROR(done);
  ShareableMemory memory(driver, mapped_bytes);
  done = memory.Map(device, handle, granularity);
  // The mapping keeps the memory.
  driver->MemoryRelease(handle);
  COTUNE_RETURN_IF_ERROR(done);
  return memory;
}

Status ShareableMemory::Map(CuDevice device, CuMemGenericHandle handle,
                            uint64_t granularity_bytes) {
  const CudaDriver& driver = *driver_;
  Status done = Checked(driver, driver->MemoryReserve(&data_, bytes_, granularity_bytes, 0, 0),
                        "cuMemAddressReserve");
  if (!done) return done;
  done = Checked(driver, driver->MemoryMap(data_, bytes_, 0, handle, 0), "cuMemMap");
  if (!done) return done;
  is_mapped_ = true;
  const CuMemAccess access{{kCuMemLocationDevice, device}, kCuMemReadWrite};
  return Checked(driver, driver->MemorySetAccess(data_, bytes_, &access, 1), "cuMemSetAccess");
}

ShareableMemory::~ShareableMemory() {
  if (data_ == 0) return;
  if (is_mapped_) (*driver_)->MemoryUnmap(data_, bytes_);
  (*driver_)->MemoryUnreserve(data_, bytes_);
}

ShareableMemory::ShareableMemory(ShareableMemory&& other) noexcept
    : driver_(other.driver_),
      bytes_(other.bytes_),
      data_(std::exchange(other.data_, 0)),
      is_mapped_(other.is_mapped_) {}

}  // namespace cotune::gpu
