// One NCCL communicator and how it comes and goes within a deadline.
#ifndef COTUNE_PLUGINS_NCCL_COMMUNICATOR_H_
#define COTUNE_PLUGINS_NCCL_COMMUNICATOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/nccl/communicator_abort.h"
#include "plugins/nccl/nccl_library.h"
#include "plugins/nccl/sdk_names.h"

namespace cotune::nccl {

// One thread at a time; Stop, StopWaiting and get from any.
class Communicator {
 public:
  // kDeferred: calls return before they have waited for peers, so that a deadline can end them;
  // but every collective would start a thread of its own. kDirect: collectives are enqueued by the
  // calling thread, as a launch must be.
  enum class Mode { kDeferred, kDirect };

  struct Member {
    int rank = 0;
    int world_size = 1;
  };

  // context: of aborts; none: NCCL makes its own current.
  Communicator(const NcclLibrary& nccl, const cotune_host_t& host,
               std::optional<AbortContext> context)
      : nccl_(nccl), host_(host), context_(context) {}
  // As Abort.
  ~Communicator() { Abort(); }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Collective; a communicator in kDeferred mode. COTUNE_DEADLINE_EXCEEDED after an abort.
  Result<void> Create(const NcclUniqueId& id, const Member& member, int64_t deadline_ns);
  // Collective; the same ranks as `parent`, which is in kDeferred mode, in kDirect mode. A deadline
  // that passes aborts the parent too.
  Result<void> CreateFrom(Communicator& parent, const Member& member, int64_t deadline_ns);

  NcclComm get() const { return comm_.load(std::memory_order_acquire); }

  // Has a wait of Create and CreateFrom end within a moment. Any thread.
  void StopWaiting() { is_stopping_.store(true, std::memory_order_release); }
  // As StopWaiting, and ends what runs on this rank, on host and device, where NCCL can do that
  // without freeing the communicator under a call that is in it.
  void Stop();
  // Begins to end what runs on this rank and to free the communicator, which this object has no
  // more from here on.
  CommunicatorAbort StartAbort() { return StartAbort(nullptr); }
  // The same, and waits for kAbortReturns at most. Returns whether the communicator is freed.
  bool Abort() { return Abort(nullptr); }
  // In kDeferred mode: waits until all ranks do the same, and frees the communicator. When they do
  // not by the deadline, returns false, and the communicator has to be aborted. NCCL has no such
  // thing with a deadline in kDirect mode.
  bool Destroy(int64_t deadline_ns);
  // Returns what NCCL has noticed in the background: COTUNE_PEER_FAILED, COTUNE_INTERNAL.
  Result<void> AsyncError() const;

 private:
  // `kept`: memory that NCCL may write until the abort has returned.
  CommunicatorAbort StartAbort(std::shared_ptr<void> kept);
  bool Abort(std::shared_ptr<void> kept);
  NcclConfig ConfigOf(Mode mode) const;
  // Waits until `comm` no longer is in progress.
  Result<void> Await(NcclComm comm, const char* call, int64_t deadline_ns) const;

  const NcclLibrary& nccl_;
  const cotune_host_t& host_;
  const std::optional<AbortContext> context_;
  std::atomic<NcclComm> comm_{nullptr};
  std::atomic<bool> is_stopping_{false};
};

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_COMMUNICATOR_H_
