// Device memory that NCCL's symmetric kernels reach on all ranks: windows.
#ifndef COTUNE_PLUGINS_NCCL_WINDOW_MEMORY_H_
#define COTUNE_PLUGINS_NCCL_WINDOW_MEMORY_H_

#include <cstdint>
#include <map>

#include "plugins/nccl/border_names.h"
#include "plugins/nccl/communicator.h"
#include "plugins/nccl/rendezvous.h"

namespace cotune::nccl {

// The windows have a communicator of their own: on one that knows a buffer, NCCL takes its
// symmetric kernels whether asked to or not. One thread at a time; the context is current.
class WindowMemory {
 public:
  WindowMemory(const NcclLibrary& nccl, const cotune_host_t& host)
      : nccl_(nccl), own_(nccl, host) {}
  ~WindowMemory() { FreeAll(); }
  WindowMemory(const WindowMemory&) = delete;
  WindowMemory& operator=(const WindowMemory&) = delete;

  // Collective, the same bytes on all ranks. Fails on all ranks when it fails on one.
  Result<void*> Allocate(Communicator& origin, Rendezvous& meeting, uint64_t bytes,
                         int64_t deadline_ns);
  void Free(void* pointer);
  void FreeAll();

  // Whether all of it lies in one allocation.
  bool Holds(const void* pointer, uint64_t bytes) const;

  Communicator& communicator() { return own_; }
  const Communicator& communicator() const { return own_; }

 private:
  struct Allocation {
    uint64_t bytes = 0;
    NcclWindow window = nullptr;
  };

  Result<void*> Take(Communicator& origin, const Rendezvous& meeting, uint64_t bytes,
                     int64_t deadline_ns);
  Result<void> Register(void* pointer, uint64_t bytes);

  const NcclLibrary& nccl_;
  Communicator own_;
  std::map<uintptr_t, Allocation> allocations_;
  int calls_ = 0;
};

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_WINDOW_MEMORY_H_
