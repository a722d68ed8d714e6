// The shared words of a group: progress, identity and failure, each rank's on its own cache lines.
#ifndef COTUNE_PLUGINS_HOST_CONTROL_BLOCK_H_
#define COTUNE_PLUGINS_HOST_CONTROL_BLOCK_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "plugins/host/futex_word.h"
#include "plugins/host/schedule.h"

namespace cotune::host {

// Progress of a rank: signal `step` of group iteration `iteration`. Later progress is a later
// number in the sense of HasReached.
constexpr uint32_t ProgressNumber(uint32_t iteration, uint32_t step) {
  return (iteration << 8) + step;
}

// The wait of a rank, published so that others can tell a late rank from its victims.
struct PublishedWait {
  enum class Kind : uint8_t { kNone, kOneRank, kArrivals, kAllRanks };
  Kind kind = Kind::kNone;
  uint8_t rank = 0;     // kOneRank: whose progress
  uint32_t target = 0;  // the progress number; for kArrivals how often each rank must have arrived

  friend bool operator==(const PublishedWait&, const PublishedWait&) = default;
};

constexpr uint64_t Pack(const PublishedWait& wait) {
  return (static_cast<uint64_t>(wait.kind) << 40) | (static_cast<uint64_t>(wait.rank) << 32) |
         wait.target;
}

constexpr PublishedWait UnpackWait(uint64_t bits) {
  return {static_cast<PublishedWait::Kind>((bits >> 40) & 0xff),
          static_cast<uint8_t>((bits >> 32) & 0xff), static_cast<uint32_t>(bits)};
}

// Why a group is unusable. The first rank to publish one decides for all.
struct GroupFailure {
  enum class Kind : uint8_t { kNone, kDied, kLate, kLeft, kUnreadable, kAborted, kOtherCall };
  Kind kind = Kind::kNone;
  uint8_t culprit = 0;   // rank in the group
  uint8_t reporter = 0;  // rank in the group that noticed
  uint8_t call = 0;      // kOtherCall: the place in RankWords::calls

  friend bool operator==(const GroupFailure&, const GroupFailure&) = default;
};

constexpr uint32_t Pack(const GroupFailure& failure) {
  return (static_cast<uint32_t>(failure.call) << 24) | (static_cast<uint32_t>(failure.kind) << 16) |
         (static_cast<uint32_t>(failure.culprit) << 8) | failure.reporter;
}

constexpr GroupFailure UnpackFailure(uint32_t bits) {
  return {static_cast<GroupFailure::Kind>((bits >> 16) & 0xff),
          static_cast<uint8_t>((bits >> 8) & 0xff), static_cast<uint8_t>(bits & 0xff),
          static_cast<uint8_t>(bits >> 24)};
}

// Returns whether a word other than 0 is a failure of a group of this size. Every process of the
// group can write to the word, so after a stray write it may hold anything.
constexpr bool IsFailure(uint32_t bits, int world_size) {
  const GroupFailure failure = UnpackFailure(bits);
  return failure.kind > GroupFailure::Kind::kNone &&
         failure.kind <= GroupFailure::Kind::kOtherCall && failure.culprit < world_size &&
         failure.reporter < world_size;
}

inline constexpr uint32_t kCallsKept = 4;
inline constexpr uint32_t kProcessorWords = 128;  // a bit for each processor that Linux can have

constexpr uint64_t PackCall(uint32_t number, uint32_t digest) {
  return (static_cast<uint64_t>(number) << 32) | digest;
}

enum class Membership : uint32_t { kAbsent, kMember, kLeft };

// The first iteration of a new group. Progress numbers wrap around soon after it, so that not only
// long jobs meet this.
inline constexpr uint32_t kFirstIteration = (1u << 24) - 1000;

struct alignas(kCacheLineBytes) RankWords {
  FutexWord progress;
  std::atomic<uint64_t> waiting;       // packed PublishedWait
  std::atomic<uint32_t> arrivals;      // of this rank, to name the ones that a barrier lacks
  std::atomic<int32_t> processor;      // 1 + the one that it ran on when it last began a call
  std::atomic<uint64_t> send_address;  // in this rank's process, while others may read it
  // The latest calls with elements, by their number in the group: number and digest of their
  // record, in the line of the progress, with which they arrive at the others; and the record. A
  // rank is at most two iterations, and so two such calls, in front of another.
  std::atomic<uint64_t> calls[kCallsKept];
  alignas(kCacheLineBytes) std::atomic<uint64_t> call_kinds[kCallsKept];
  std::atomic<uint64_t> call_counts[kCallsKept];
  alignas(kCacheLineBytes) std::atomic<uint32_t> membership;
  std::atomic<uint32_t> probed;  // has tried to read the others
  std::atomic<int32_t> pid;
  std::atomic<uint64_t> start_ticks;
  std::atomic<uint64_t> token_address;  // of ControlBlock::token in this rank's process
};

struct ControlBlock {
  alignas(kCacheLineBytes) uint8_t token[16];  // proves that this is the segment that was announced
  alignas(kCacheLineBytes) FutexWord members;  // ranks that have joined
  FutexWord probed;                            // ranks that have tried to read the others
  std::atomic<uint32_t> unreadable;            // a rank could not: 1 + the rank it tried
  std::atomic<uint32_t> storers_fence;         // a rank could not join process fences
  std::atomic<uint64_t> processors[kProcessorWords];       // that some rank may use
  alignas(kCacheLineBytes) FutexWord arrivals;             // of all ranks together
  alignas(kCacheLineBytes) std::atomic<uint32_t> failure;  // packed GroupFailure
  std::atomic<uint64_t> late_ranks;                        // bit a rank, for the message
  RankWords ranks[kMaxRanks];
};

static_assert(offsetof(RankWords, call_kinds) == kCacheLineBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::is_standard_layout_v<ControlBlock>);

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_CONTROL_BLOCK_H_
