// Runs a schedule over UCX.
#ifndef COTUNE_PLUGINS_UCX_OPERATION_H_
#define COTUNE_PLUGINS_UCX_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "plugins/sdk/call_record.h"
#include "plugins/sdk/reduce_kernel.h"
#include "plugins/sdk/shared_scratch.h"
#include "plugins/ucx/group.h"
#include "plugins/ucx/schedule.h"
#include "plugins/ucx/segment_memory.h"

namespace cotune::ucx {

enum class Advance { kComplete, kInProgress, kFailed };

// One collective of one rank, over and over: Start, then Run until it is complete. Allocates
// nothing after construction. Used with the group's worker held.
class Operation final : public RunningCall {
 public:
  // The group outlives the operation. `choice` is the name that the schedule was made by.
  Operation(Group& group, Schedule schedule, std::string_view choice);

  ~Operation() override;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Posts the first messages. Buffers are as in the ABI's table and stay in use until Run gives
  // kComplete or kFailed.
  void Start(const void* send, void* receive, int64_t deadline_ns);
  // kInProgress: `until_ns` has passed (0: one attempt without waiting). kFailed: see
  // Group::Health.
  Advance Run(int64_t until_ns);
  // Takes back what is posted, in 0.1 s at most; afterwards UCX does not touch the caller's
  // buffers, whatever becomes of the group.
  void Cancel();

  uint64_t Awaited() const override;

  const sdk::CallRecord& call() const { return call_; }
  const Schedule& schedule() const { return schedule_; }

 private:
  // An instance that runs, or a place for one.
  struct Slot {
    bool runs = false;
    uint64_t instance = 0;
    uint32_t step = 0;
    uint32_t open = 0;  // messages of the step that are not complete
  };

  const Lane& LaneOf(const Slot& slot) const {
    return schedule_.lanes[slot.instance % schedule_.lanes.size()];
  }
  SegmentMemory MemoryOf(const Slot& slot);
  Request& RequestOf(const Slot& slot, size_t message);
  // True where an instance went on.
  bool AdvanceAll();
  void Begin(Slot& slot);
  void PostStep(Slot& slot);
  void Post(Slot& slot, const Message& message, Request& request, const SegmentMemory& memory);
  // Returns true if all data that the call sent has left this process.
  bool IsSent();

  Group& group_;
  const Schedule schedule_;
  const sdk::CallRecord call_;
  const uint32_t largest_step_;
  const uint64_t polled_peers_;            // bit r: Group::NeedsPolls(r)
  std::shared_ptr<RequestPool> requests_;  // [window][largest_step_]
  std::vector<Slot> slots_;
  sdk::SharedScratch::Share scratch_;  // [window][scratch_bytes]
  sdk::ReduceKernel kernel_ = nullptr;

  CallBuffers buffers_;
  int64_t begin_ns_ = 0;
  int64_t deadline_ns_ = 0;
  int64_t idle_since_ns_ = 0;  // 0: something has happened lately
  uint64_t begun_ = 0;         // instances
  uint64_t ended_ = 0;
  uint64_t unsent_ = 0;  // bit r: messages to rank r are complete and have not left
};

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_OPERATION_H_
