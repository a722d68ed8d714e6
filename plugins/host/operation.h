// Runs a schedule on the shared memory of a group, as far as the other ranks let it.
#ifndef COTUNE_PLUGINS_HOST_OPERATION_H_
#define COTUNE_PLUGINS_HOST_OPERATION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/host/group.h"
#include "plugins/host/schedule.h"
#include "plugins/sdk/reduce_kernel.h"

namespace cotune::host {

enum class Advance { kComplete, kInProgress, kFailed };

// One collective of one rank, over and over: Start, then Run until it is complete. Keeps its place
// between calls of Run. Allocates nothing after construction. One thread at a time.
class Operation {
 public:
  // The group must outlive the operation. `choice` is the name that the schedule was made by.
  Operation(Group& group, Schedule schedule, std::string_view choice);

  // Buffers are as in the ABI's table and stay in use until Run gives kComplete or kFailed.
  void Start(const void* send, void* receive, int64_t deadline_ns);

  // kInProgress: `until_ns` has passed (0: one attempt without waiting). kFailed: see
  // Group::Health.
  Advance Run(int64_t until_ns);

  const sdk::CallRecord& call() const { return call_; }
  const Schedule& schedule() const { return schedule_; }

 private:
  // The elements that an operation touches in the present iteration.
  struct Range {
    uint64_t chunk_begin = 0;  // elements from the start of the block
    uint64_t part_begin = 0;   // elements from the start of the chunk
    uint64_t count = 0;
    uint32_t half = 0;
  };

  Range RangeOf(const Op& op) const;
  // From the begin of a caller's buffer.
  uint64_t ByteOffset(const Place& place, const Range& range) const;
  std::byte* Locate(const Place& place, const Range& range) const;
  WaitOutcome Execute(const Op& op, int64_t until_ns);
  // False: the group has failed.
  bool Copy(const Op& op);
  void Put(const Op& op);
  WaitOutcome Take(const Op& op, int64_t until_ns);
  WaitOutcome WaitForSignals(const PublishedWait& wait, int64_t until_ns);
  void Reduce(const Op& op);

  Group& group_;
  Schedule schedule_;
  sdk::CallRecord call_;
  sdk::ReduceKernel kernel_ = nullptr;
  std::vector<std::byte> staging_;  // [parts][region_bytes]
  const std::byte* send_ = nullptr;
  std::byte* receive_ = nullptr;
  int64_t deadline_ns_ = 0;
  uint64_t iteration_ = 0;  // of the schedule
  size_t next_op_ = 0;
};

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_OPERATION_H_
