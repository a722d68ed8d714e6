#include "plugins/cuda/memory/peer_memory.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

namespace cotune::cuda {

using sdk::Fail;
using sdk::Result;

namespace {

void LeaveToProcess(std::vector<GroupRemains> remains) {
  // Never destroyed: its mappings stay.
  static auto* const left = new std::vector<std::vector<GroupRemains>>;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  left->push_back(std::move(remains));
}

}  // namespace

PeerMemory::~PeerMemory() {
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  if (!gpu_.IsStuck()) Sweep();
  if (gpu_.IsStuck() || !in_graphs_.empty() || !abandoned_.empty()) {
    LeaveToProcess(std::move(in_graphs_));
    LeaveToProcess(std::move(abandoned_));
    return;
  }
  for (const auto& [handle, pointer] : mapped_) gpu_.driver()->IpcCloseHandle(pointer);
  for (const gpu::CuDevicePointer pointer : allocated_) gpu_.driver()->MemoryFree(pointer);
}

Result<gpu::CuDevicePointer> PeerMemory::Take(uint64_t bytes, const HaveLeft& have_left) {
  // Nobody else is given them meanwhile: the GPU may take long to answer, and others do not wait.
  std::vector<Arena> candidates;
  {
    const std::lock_guard lock(mutex_);
    Sweep();
    const auto fitting = std::partition(free_.begin(), free_.end(),
                                        [&](const Arena& arena) { return arena.bytes != bytes; });
    candidates.assign(fitting, free_.end());
    free_.erase(fitting, free_.end());
  }
  const auto found = std::find_if(candidates.begin(), candidates.end(), [&](const Arena& arena) {
    return !arena.is_shared || have_left(arena);
  });
  gpu::CuDevicePointer pointer = 0;
  if (found != candidates.end()) {
    pointer = found->data;
    candidates.erase(found);
  }
  const std::lock_guard lock(mutex_);
  free_.insert(free_.end(), candidates.begin(), candidates.end());
  if (pointer != 0) {
    ++taken_;
    return pointer;
  }
  COTUNE_RETURN_IF_ERROR(gpu_.Check(gpu_.driver()->MemoryAllocate(&pointer, bytes), "cuMemAlloc"));
  allocated_.push_back(pointer);
  ++taken_;
  return pointer;
}

void PeerMemory::GiveBack(GroupRemains remains) {
  const std::lock_guard lock(mutex_);
  if (remains.arena.data != 0) --taken_;
  in_graphs_.push_back(std::move(remains));
  Sweep();
}

void PeerMemory::Abandon(GroupRemains remains) {
  const std::lock_guard lock(mutex_);
  abandoned_.push_back(std::move(remains));
}

void PeerMemory::Sweep() {
  const auto ended = std::partition(in_graphs_.begin(), in_graphs_.end(),
                                    [](const GroupRemains& each) { return each.graphs->IsAny(); });
  for (auto each = ended; each != in_graphs_.end(); ++each) {
    if (each->host_words != nullptr) gpu_.driver()->HostFree(each->host_words);
    if (each->arena.data != 0) free_.push_back(each->arena);
  }
  in_graphs_.erase(ended, in_graphs_.end());
}

bool PeerMemory::HasTaken() {
  const std::lock_guard lock(mutex_);
  return taken_ > 0;
}

bool PeerMemory::IsInUse() {
  const std::lock_guard lock(mutex_);
  if (!abandoned_.empty()) return true;
  for (const GroupRemains& remains : in_graphs_) {
    if (remains.graphs->IsAnyAtEnd()) return true;
  }
  return false;
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
