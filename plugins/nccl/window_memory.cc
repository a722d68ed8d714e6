#include "plugins/nccl/window_memory.h"

#include <fmt/format.h>

namespace cotune::nccl {
namespace {

uintptr_t AddressOf(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

void WindowMemory::UnregisterAll() {
  while (!windows_.empty()) Unregister(reinterpret_cast<void*>(windows_.begin()->first));
}

Result<void> WindowMemory::Register(Communicator& origin, Rendezvous& meeting, void* data,
                                    uint64_t bytes, int64_t deadline_ns) {
  if (!nccl_.has_windows()) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("NCCL {} has no symmetric memory; 2.27 or newer has",
                            VersionText(nccl_.version())));
  }
  // All ranks are ready before any registers: registering waits for all, without a deadline.
  const auto ready = GetReady(origin, meeting, data, deadline_ns);
  const int call = calls_++;
  Result<Announcement> own = Announcement{};
  if (!ready) own = tl::unexpected(ready.error());
  auto all = meeting.Meet(fmt::format("window{}", call), own, deadline_ns);
  if (!all) return tl::unexpected(all.error());
  NcclWindow window = nullptr;
  auto done = nccl_.Check(
      nccl_->CommWindowRegister(own_.get(), data, bytes, &window, kNcclWinCollSymmetric),
      "ncclCommWindowRegister", own_.get());
  if (!done) return done;
  if (window == nullptr) {
    return Fail(COTUNE_UNSUPPORTED,
                "NCCL does not register symmetric memory here; see NCCL_CUMEM_ENABLE and "
                "NCCL_WIN_ENABLE");
  }
  windows_.emplace(AddressOf(data), Window{bytes, window});
  return {};
}

Result<void> WindowMemory::GetReady(Communicator& origin, const Rendezvous& meeting,
                                    const void* data, int64_t deadline_ns) {
  if (AddressOf(data) % kNcclWinAlignment != 0) {
    return Fail(
        COTUNE_UNSUPPORTED,
        fmt::format("NCCL registers memory that begins at a multiple of {} bytes, and {:#x} "
                    "is none",
                    kNcclWinAlignment, AddressOf(data)));
  }
  if (own_.get() != nullptr) return {};
  return own_.CreateFrom(origin, {meeting.rank(), meeting.world_size()}, deadline_ns);
}

void WindowMemory::Unregister(void* data) {
  const auto found = windows_.find(AddressOf(data));
  if (found == windows_.end()) return;
  // An aborted communicator has let go of its windows already.
  if (own_.get() != nullptr) nccl_->CommWindowDeregister(own_.get(), found->second.handle);
  windows_.erase(found);
}

bool WindowMemory::Holds(const void* pointer, uint64_t bytes) const {
  const auto next = windows_.upper_bound(AddressOf(pointer));
  if (next == windows_.begin()) return false;
  const auto& [begin, window] = *std::prev(next);
  return AddressOf(pointer) + bytes <= begin + window.bytes;
}

}  // namespace cotune::nccl
