// Device memory that NCCL's symmetric kernels reach on all ranks: windows.
#ifndef COTUNE_PLUGINS_NCCL_WINDOW_MEMORY_H_
#define COTUNE_PLUGINS_NCCL_WINDOW_MEMORY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "plugins/nccl/communicator.h"
#include "plugins/nccl/sdk_names.h"
#include "plugins/sdk/rendezvous.h"

namespace cotune::nccl {

// The windows have a communicator of their own: on one that knows a buffer, NCCL takes its
// symmetric kernels whether asked to or not. One thread at a time; the context is current.
class WindowMemory {
 public:
  WindowMemory(const NcclLibrary& nccl, const cotune_host_t& host,
               std::optional<AbortContext> context)
      : nccl_(nccl), own_(nccl, host, context) {}
  ~WindowMemory() { UnregisterAll(); }
  WindowMemory(const WindowMemory&) = delete;
  WindowMemory& operator=(const WindowMemory&) = delete;

  // Collective: the caller's memory, the same bytes on all ranks. healthy: a failure of this rank
  // before, which all ranks hear of. Fails on all ranks when one has not come that far.
  // COTUNE_UNSUPPORTED: NCCL or this memory does not do. Waits in NCCL without a deadline in the
  // end: the caller watches it.
  Result<void> Register(const Result<void>& healthy, Communicator& origin,
                        const sdk::Rendezvous& meeting, void* data, uint64_t bytes,
                        int64_t deadline_ns);
  // Removes the registration that begins at `data`, if there is one.
  void Unregister(void* data);
  void UnregisterAll();

  bool is_empty() const { return windows_.empty(); }
  // Whether all of it lies in one window.
  bool Holds(const void* pointer, uint64_t bytes) const;

  Communicator& communicator() { return own_; }
  const Communicator& communicator() const { return own_; }

 private:
  struct Window {
    uint64_t bytes = 0;
    NcclWindow handle = nullptr;
  };

  // All ranks are here, and each says whether it can go on; fails on all when one cannot.
  static Result<void> Meet(const sdk::Rendezvous& meeting, const std::string& phase,
                           const Result<void>& own, int64_t deadline_ns);

  const NcclLibrary& nccl_;
  Communicator own_;
  std::map<uintptr_t, Window> windows_;  // by where they begin
  int calls_ = 0;
};

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_WINDOW_MEMORY_H_
