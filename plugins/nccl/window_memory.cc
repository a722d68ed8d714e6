#include "plugins/nccl/window_memory.h"

#include <fmt/format.h>

#include "plugins/nccl/announcement.h"

namespace cotune::nccl {
namespace {

uintptr_t AddressOf(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

void WindowMemory::UnregisterAll() {
  while (!windows_.empty()) Unregister(reinterpret_cast<void*>(windows_.begin()->first));
}

Result<void> WindowMemory::Register(const Result<void>& healthy, Communicator& origin,
                                    const sdk::Rendezvous& meeting, void* data, uint64_t bytes,
                                    int64_t deadline_ns) {
  if (!nccl_.has_windows()) {
    return Fail(COTUNE_UNSUPPORTED,
                fmt::format("NCCL {} has no symmetric memory; 2.27 or newer has",
                            VersionText(nccl_.version())));
  }
  const int call = calls_++;
  Result<void> own = healthy;
  if (own && AddressOf(data) % kNcclWinAlignment != 0) {
    own = Fail(COTUNE_UNSUPPORTED,
               fmt::format("NCCL registers memory that begins at a multiple of {} bytes, and {:#x} "
                           "is none",
                           kNcclWinAlignment, AddressOf(data)));
  }
  // All ranks go into each collective call of NCCL, or none does.
  auto done = Meet(meeting, fmt::format("window{}", call), own, deadline_ns);
  if (!done) return done;
  if (own_.get() == nullptr) {
    own = own_.CreateFrom(origin, {meeting.rank(), meeting.world_size()}, deadline_ns);
    done = Meet(meeting, fmt::format("windows of {}", call), own, deadline_ns);
    if (!done) return done;
  }
  if (own_.get() == nullptr) {
    return Fail(COTUNE_ABORTED, "the group was ended before ncclCommWindowRegister");
  }
  NcclWindow window = nullptr;
  done = nccl_.Check(
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

Result<void> WindowMemory::Meet(const sdk::Rendezvous& meeting, const std::string& phase,
                                const Result<void>& own, int64_t deadline_ns) {
  Result<Announcement> word = Announcement{};
  if (!own) word = Propagate(own);
  COTUNE_RETURN_IF_ERROR(meeting.Meet(phase, word, deadline_ns));
  return {};
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
