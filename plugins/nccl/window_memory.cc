#include "plugins/nccl/window_memory.h"

#include <fmt/format.h>

namespace cotune::nccl {
namespace {

uintptr_t AddressOf(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

void WindowMemory::FreeAll() {
  while (!allocations_.empty()) Free(reinterpret_cast<void*>(allocations_.begin()->first));
}

Result<void*> WindowMemory::Allocate(Communicator& origin, Rendezvous& meeting, uint64_t bytes,
                                     int64_t deadline_ns) {
  if (!nccl_.has_windows()) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("NCCL {} has no symmetric memory; 2.27 or newer has",
                            VersionText(nccl_.version())));
  }
  // All ranks have theirs before any registers: registering waits for all, without a deadline.
  const Result<void*> taken = Take(origin, meeting, bytes, deadline_ns);
  const int call = calls_++;
  Result<Announcement> own = Announcement{};
  if (!taken) own = tl::unexpected(taken.error());
  auto all = meeting.Meet(fmt::format("window{}", call), own, deadline_ns);
  if (!all) {
    if (taken) nccl_->MemFree(*taken);
    return tl::unexpected(all.error());
  }
  if (auto done = Register(*taken, bytes); !done) {
    nccl_->MemFree(*taken);
    return tl::unexpected(done.error());
  }
  return *taken;
}

Result<void*> WindowMemory::Take(Communicator& origin, const Rendezvous& meeting, uint64_t bytes,
                                 int64_t deadline_ns) {
  if (own_.get() == nullptr) {
    auto made = own_.CreateFrom(origin, {meeting.rank(), meeting.world_size()}, deadline_ns);
    if (!made) return tl::unexpected(made.error());
  }
  void* pointer = nullptr;
  auto done = nccl_.Check(nccl_->MemAlloc(&pointer, bytes), "ncclMemAlloc", own_.get());
  if (!done) return tl::unexpected(done.error());
  if (AddressOf(pointer) % kNcclWinAlignment != 0) {
    nccl_->MemFree(pointer);
    return Fail(COTUNE_INTERNAL, fmt::format("ncclMemAlloc gave memory that is not aligned to {}",
                                             kNcclWinAlignment));
  }
  return pointer;
}

Result<void> WindowMemory::Register(void* pointer, uint64_t bytes) {
  NcclWindow window = nullptr;
  auto done = nccl_.Check(
      nccl_->CommWindowRegister(own_.get(), pointer, bytes, &window, kNcclWinCollSymmetric),
      "ncclCommWindowRegister", own_.get());
  if (!done) return done;
  if (window == nullptr) {
    return Fail(COTUNE_UNSUPPORTED,
                "NCCL does not register symmetric memory here; see NCCL_CUMEM_ENABLE and "
                "NCCL_WIN_ENABLE");
  }
  allocations_.emplace(AddressOf(pointer), Allocation{bytes, window});
  return {};
}

void WindowMemory::Free(void* pointer) {
  const auto found = allocations_.find(AddressOf(pointer));
  if (found == allocations_.end()) return;
  // An aborted communicator has let go of its windows already.
  if (own_.get() != nullptr) nccl_->CommWindowDeregister(own_.get(), found->second.window);
  nccl_->MemFree(pointer);
  allocations_.erase(found);
}

bool WindowMemory::Holds(const void* pointer, uint64_t bytes) const {
  auto next = allocations_.upper_bound(AddressOf(pointer));
  if (next == allocations_.begin()) return false;
  const auto& [begin, allocation] = *std::prev(next);
  return AddressOf(pointer) + bytes <= begin + allocation.bytes;
}

}  // namespace cotune::nccl
