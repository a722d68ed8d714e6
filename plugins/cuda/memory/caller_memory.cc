#include "plugins/cuda/memory/caller_memory.h"

#include <fmt/format.h>

#include <utility>

namespace cotune::cuda {

using sdk::Fail;
using sdk::Result;

Result<ExportedMemory> ExportMemory(const Gpu& gpu, void* data, uint64_t bytes) {
  const gpu::CudaDriver& driver = gpu.driver();
  const auto address = reinterpret_cast<gpu::CuDevicePointer>(data);
  gpu::CuDevicePointer base = 0;
  size_t size = 0;
  if (auto found = gpu.Check(driver->MemoryGetRange(&base, &size, address), "cuMemGetAddressRange");
      !found) {
    return Fail(COTUNE_INVALID_ARGUMENT,
                fmt::format("there is no memory of GPU {} at {:#x}", gpu.ordinal(), address));
  }
  if (bytes > size - (address - base)) {
    return Fail(COTUNE_INVALID_ARGUMENT,
                fmt::format("{} bytes at {:#x} are more than one allocation of {} bytes", bytes,
                            address, size));
  }
  gpu::CuMemGenericHandle handle = 0;
  const gpu::CuResult retained = driver->MemoryRetainHandle(&handle, data);
  if (retained != gpu::kCuSuccess) {
    return Fail(COTUNE_UNSUPPORTED,
                "this memory was not mapped by cuMemMap, as that of cudaMalloc was not: allocate "
                "it with cotune_memory_allocate",
                retained);
  }
  int fd = -1;
  const gpu::CuResult exported =
      driver->MemoryExportHandle(&fd, handle, gpu::kCuMemHandlePosixFd, 0);
  driver->MemoryRelease(handle);
  if (exported != gpu::kCuSuccess) {
    return Fail(COTUNE_UNSUPPORTED,
                "this memory was not created for export as a file descriptor: allocate it with "
                "cotune_memory_allocate",
                exported);
  }
  return ExportedMemory{Descriptor(fd), size, address - base};
}

Result<PeerMapping> PeerMapping::Map(const Gpu& gpu, const Descriptor& descriptor,
                                     uint64_t allocation_bytes) {
  const gpu::CudaDriver& driver = gpu.driver();
  gpu::CuMemGenericHandle handle = 0;
  void* const shareable = reinterpret_cast<void*>(static_cast<intptr_t>(descriptor.get()));
  auto done = gpu.Check(driver->MemoryImportHandle(&handle, shareable, gpu::kCuMemHandlePosixFd),
                        "cuMemImportFromShareableHandle");
  COTUNE_RETURN_IF_ERROR(done);
  PeerMapping mapping(gpu, allocation_bytes);
  done = gpu.Check(driver->MemoryReserve(&mapping.data_, allocation_bytes, 0, 0, 0),
                   "cuMemAddressReserve");
  if (done) {
    done = gpu.Check(driver->MemoryMap(mapping.data_, allocation_bytes, 0, handle, 0), "cuMemMap");
    mapping.is_mapped_ = done.has_value();
  }
  driver->MemoryRelease(handle);
  COTUNE_RETURN_IF_ERROR(done);
  const gpu::CuMemAccess access{{gpu::kCuMemLocationDevice, gpu.ordinal()}, gpu::kCuMemReadWrite};
  const gpu::CuResult code = driver->MemorySetAccess(mapping.data_, allocation_bytes, &access, 1);
  if (auto allowed = gpu.Check(code, "cuMemSetAccess"); !allowed) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("this GPU does not reach a peer's memory: {}", allowed.error().message),
                code);
  }
  return mapping;
}

PeerMapping::~PeerMapping() {
  // A kernel that still runs may use it, and the driver would wait for that.
  if (data_ == 0 || gpu_->IsStuck()) return;
  if (is_mapped_) gpu_->driver()->MemoryUnmap(data_, bytes_);
  gpu_->driver()->MemoryUnreserve(data_, bytes_);
}

PeerMapping::PeerMapping(PeerMapping&& other) noexcept
    : gpu_(other.gpu_),
      bytes_(other.bytes_),
      data_(std::exchange(other.data_, 0)),
      is_mapped_(other.is_mapped_) {}

}  // namespace cotune::cuda
