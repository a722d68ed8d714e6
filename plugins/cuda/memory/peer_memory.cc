#include "plugins/cuda/memory/peer_memory.h"

#include <fmt/format.h>
#include <unistd.h>

namespace cotune::cuda {

using sdk::Fail;
using sdk::Result;

PeerMemory::~PeerMemory() {
  if (gpu_.IsStuck()) return;
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  for (const auto& [handle, pointer] : mapped_) gpu_.driver()->IpcCloseHandle(pointer);
  for (const gpu::CuDevicePointer pointer : allocated_) gpu_.driver()->MemoryFree(pointer);
}

Result<gpu::CuDevicePointer> PeerMemory::Take(uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (const auto found = free_.find(bytes); found != free_.end()) {
    const gpu::CuDevicePointer pointer = found->second;
    free_.erase(found);
    return pointer;
  }
  gpu::CuDevicePointer pointer = 0;
  COTUNE_RETURN_IF_ERROR(gpu_.Check(gpu_.driver()->MemoryAllocate(&pointer, bytes), "cuMemAlloc"));
  allocated_.push_back(pointer);
  return pointer;
}

void PeerMemory::GiveBack(gpu::CuDevicePointer pointer, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  free_.emplace(bytes, pointer);
}

bool PeerMemory::HasTaken() {
  const std::lock_guard lock(mutex_);
  return allocated_.size() > free_.size();
}

Result<MemoryOffer> PeerMemory::OfferOf(gpu::CuDevicePointer pointer, uint64_t bytes) const {
  MemoryOffer offer;
  offer.pid = getpid();
  offer.bytes = bytes;
  COTUNE_RETURN_IF_ERROR(
      gpu_.Check(gpu_.driver()->IpcGetHandle(&offer.handle, pointer), "cuIpcGetMemHandle"));
  return offer;
}

Result<gpu::CuDevicePointer> PeerMemory::Map(const MemoryOffer& offer) {
  if (offer.pid == getpid()) {
    return Fail(COTUNE_UNSUPPORTED,
                "two ranks in one process: each needs a process of its own to share memory by IPC");
  }
  const std::lock_guard lock(mutex_);
  const std::string key(reinterpret_cast<const char*>(offer.handle.reserved),
                        sizeof(offer.handle.reserved));
  if (const auto found = mapped_.find(key); found != mapped_.end()) return found->second;
  gpu::CuDevicePointer pointer = 0;
  const gpu::CuResult code =
      gpu_.driver()->IpcOpenHandle(&pointer, offer.handle, gpu::kCuIpcLazyEnablePeerAccess);
  if (auto done = gpu_.Check(code, "cuIpcOpenMemHandle"); !done) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("this GPU does not reach a peer's memory: {}", done.error().message),
                code);
  }
  mapped_.emplace(key, pointer);
  return pointer;
}

}  // namespace cotune::cuda
