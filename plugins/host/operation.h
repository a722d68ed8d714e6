// Runs a schedule on the shared memory of a group, as far as the other ranks let it.
#ifndef COTUNE_PLUGINS_HOST_OPERATION_H_
#define COTUNE_PLUGINS_HOST_OPERATION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "plugins/host/fused_operations.h"
#include "plugins/host/group.h"
#include "plugins/host/schedule.h"
#include "plugins/sdk/reduce_kernel.h"
#include "plugins/sdk/shared_scratch.h"

namespace cotune::host {

enum class Advance { kComplete, kInProgress, kFailed };

// One collective of one rank, over and over: Start, then Run until it is complete. Keeps its place
// between calls of Run. Allocates nothing after construction. One thread at a time.
class Operation {
 public:
  // The group must outlive the operation, and so must `fused`, the operations around the collective
  // (nullptr: none). `call` is compared with those of the other ranks.
  Operation(Group& group, Schedule schedule, const sdk::CallRecord& call,
            FusedOperations* fused = nullptr);

  // The buffers of a region are those of `fused`, whose call has begun: its operand, if nothing is
  // before the collective, and its value, if nothing is after it. The call of `fused` is at its end
  // when Run gives kComplete. Buffers are as in the ABI's table and stay in use until Run gives
  // kComplete or kFailed.
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
  // The element of the collective's operand or value, from the begin of a caller's buffer.
  uint64_t ElementOf(const Place& place, const Range& range) const;
  std::byte* Locate(const Place& place, const Range& range) const;
  // Calls `body` for the pieces of a range that a cache holds, as long as it returns true.
  template <class Body>
  bool ForPieces(const Range& range, const Body& body) const;
  // Returns true if operations compute what a source reads, or take what a destination gets.
  bool IsComputed(const Place& place) const {
    return computes_operand_ && place.space == Space::kInput;
  }
  bool IsUsed(const Place& place) const { return uses_value_ && place.space == Space::kOutput; }
  // The destinations of an operation that are memory, and the one that operations take.
  struct Destinations {
    std::array<Place, 2> stored;
    size_t stored_count = 0;
    std::optional<Place> used;  // in kOutput
  };
  Destinations DestinationsOf(const Op& op) const;
  // The address of a source, computed before if it is an operand that is.
  const std::byte* Source(const Place& place, const Range& range);
  void Use(const Place& place, const Range& range, const std::byte* value);
  WaitOutcome Execute(const Op& op, int64_t until_ns);
  // False: the group has failed.
  bool Copy(const Op& op);
  void Put(const Op& op);
  WaitOutcome Take(const Op& op, int64_t until_ns);
  WaitOutcome WaitForSignals(const PublishedWait& wait, int64_t until_ns);
  // One piece of a region's copy.
  bool CopyPiece(const Op& op, const Range& piece);
  void Reduce(const Op& op);
  void ReducePiece(const Op& op, const Range& piece);

  Group& group_;
  Schedule schedule_;
  sdk::CallRecord call_;
  sdk::ReduceKernel kernel_ = nullptr;
  FusedOperations* fused_;
  bool computes_operand_;
  bool uses_value_;
  uint64_t piece_elements_ = 0;         // if fused_ is set
  sdk::SharedScratch::Share scratch_;   // holds the following
  std::byte* staging_ = nullptr;        // [parts][region_bytes]
  std::byte* operand_piece_ = nullptr;  // the computed operand of a region
  std::byte* value_piece_ = nullptr;    // the value that no slot keeps
  const std::byte* send_ = nullptr;
  std::byte* receive_ = nullptr;
  int64_t deadline_ns_ = 0;
  uint64_t iteration_ = 0;  // of the schedule
  size_t next_op_ = 0;
};

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_OPERATION_H_
