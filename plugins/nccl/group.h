// A group of ranks with a communicator of NCCL.
#ifndef COTUNE_PLUGINS_NCCL_GROUP_H_
#define COTUNE_PLUGINS_NCCL_GROUP_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "gpu/driver/graph_uses.h"
#include "plugins/api/cotune_backend_v1.h"
#include "plugins/nccl/announcement.h"
#include "plugins/nccl/call_comparison.h"
#include "plugins/nccl/call_record.h"
#include "plugins/nccl/choice_list.h"
#include "plugins/nccl/collective_call.h"
#include "plugins/nccl/communicator.h"
#include "plugins/nccl/launch_watch.h"
#include "plugins/nccl/nccl_library.h"
#include "plugins/nccl/sdk_names.h"
#include "plugins/nccl/window_memory.h"
#include "plugins/sdk/gpu/gpu.h"
#include "plugins/sdk/rendezvous.h"

namespace cotune::nccl {

using sdk::Gpu;

// One rank's end of a group. Health and Abort: any thread; everything else: one thread at a time.
class Group {
 public:
  // Collective. When it returns, ranks are connected in every way that the choices use, so that a
  // launch does not wait for peers.
  // compares_calls: every call is compared with those of the other ranks, on the host.
  static Result<std::unique_ptr<Group>> Join(const cotune_host_t& host,
                                             const cotune_group_params_t& params, const Gpu& gpu,
                                             const NcclLibrary& nccl, bool compares_calls);
  // Not collective; bounded time. What still runs is aborted. A CUDA graph with calls of this group
  // should be destroyed before: replays of one that lives on still end, with results that are not
  // valid, and NCCL keeps the memory that they reach until the graph is destroyed. It logs a
  // warning then.
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int rank() const { return meeting_.rank(); }
  int world_size() const { return meeting_.world_size(); }

  // COTUNE_UNSUPPORTED when NCCL does not let this way be forced here; the same on all ranks.
  Result<void> CheckMethod(const Problem& problem, const CallMethod& method) const;
  // Has launches ended at their deadlines from here on; before the first. Any thread.
  void WatchLaunches() { watch_.Start(); }
  // Enqueues a problem. COTUNE_UNSUPPORTED: enqueued, but in another way than this one, or a
  // captured call that NCCL would not complete, which it does not get. Outside of graphs, a
  // deadline that passes before the stream has got through it ends the group. `record` is what
  // other ranks compare, where they do.
  Result<void> Launch(const Problem& problem, const CallMethod& method, const CallRecord& record,
                      const CallBuffers& buffers, gpu::CuStream stream, int64_t deadline_ns);

  // Collective: memory of the caller for the way with windows, the same bytes on all ranks.
  Result<void> RegisterMemory(void* data, uint64_t bytes, int64_t deadline_ns);
  // The collectives that use it are over.
  void UnregisterMemory(void* data);

  // The failure that made the group unusable, if any; looks for new ones.
  std::optional<Failure> Health();
  // As Health; where calls are compared, those that are complete or captured are compared first,
  // which peers that have not made them yet delay by kComparisonWaitNs at most.
  std::optional<Failure> HealthOfCompleteCalls();
  bool HasFailed() const { return has_failed_.load(std::memory_order_acquire); }
  // Frees every waiter of this rank, on host and device, CUDA graphs that are running included.
  void Abort();

 private:
  struct WarmUp;

  // Well below the time after which the host takes a call into this plugin for stuck.
  static constexpr int64_t kComparisonWaitNs = 2'000'000'000;

  Group(const cotune_host_t& host, const cotune_group_params_t& params, const Gpu& gpu,
        const NcclLibrary& nccl, bool compares_calls);
  Result<void> Connect(int64_t deadline_ns);
  Result<NcclUniqueId> ExchangeId(int64_t deadline_ns);
  Result<void> ConnectAll(int64_t deadline_ns);
  Result<void> WarmUpOnce(const WarmUp& what, int64_t deadline_ns);
  Result<void> AwaitStream(gpu::CuStream stream, int64_t deadline_ns) const;
  void StartComparing();
  Failure LateFailure(const LaunchWatch::Launch& launch) const;
  // Aborts all communicators, lets a call that is in NCCL return first. Bounded time, and a warning
  // if NCCL has not freed them by then. Any thread; a failure has been declared or the group goes,
  // so that no call goes in any more.
  void EndCommunicators();
  void WarnOfAbort() const;
  void LookForFailure();

  // Keeps the first failure.
  void Declare(const Failure& failure);
  std::optional<Failure> Declared() const;
  int64_t NowNs() const { return host_.now_ns(host_.context); }

  const cotune_host_t& host_;
  const Gpu& gpu_;
  const NcclLibrary& nccl_;
  const bool compares_calls_;
  sdk::Rendezvous meeting_;
  Communicator origin_;  // deferred: makes the others
  Communicator plain_;
  WindowMemory windows_;

  // The decisions that NCCL allows its tuner, by collective; empty where it did not ask.
  std::array<std::optional<AllowedDecisions>, 5> allowed_{};
  uint64_t launches_ = 0;

  std::mutex call_mutex_;  // held while a call is in NCCL, and for launches_
  std::mutex end_mutex_;   // held while communicators are ended; before call_mutex_
  mutable std::mutex failure_mutex_;
  std::optional<Failure> failure_;
  std::atomic<bool> has_failed_{false};
  std::atomic<bool> is_aborted_{false};
  gpu::GraphUses graphs_;  // that have captured a call
  // The last ones: their threads use the others.
  std::unique_ptr<CallComparison> comparison_;  // where calls are compared
  LaunchWatch watch_;
};

}  // namespace cotune::nccl

#endif  // COTUNE_PLUGINS_NCCL_GROUP_H_
