// Every bound of the control channel in one place.
#ifndef COTUNE_SYNC_WIRE_LIMITS_H_
#define COTUNE_SYNC_WIRE_LIMITS_H_

#include <cstdint>

#include "core/ranks/rank_exchange.h"

namespace cotune::sync {

inline constexpr uint32_t kProtocolVersion = 2;

inline constexpr int kWorldSizeMax = 1024;
inline constexpr uint64_t kNameBytesMax = 255;          // step, subgroup, key, job id, code version
inline constexpr uint64_t kFieldsBytesMax = 60 * 1024;  // names and values of one pre-sync
inline constexpr uint64_t kFrameSlackBytes = 8 * 1024;  // everything in a frame beside its payload
inline constexpr uint64_t kHelloFrameBytesMax = 4 * 1024;
inline constexpr uint64_t kFrameBytesMax = RankExchange::kRecordBytesMax + kFrameSlackBytes;
inline constexpr uint64_t kProposalFrameBytesMax =
    RankExchange::kProposalBytesMax + kFrameSlackBytes;

// Connections that have not said HELLO, beside one for each rank: all ranks may knock at once.
inline constexpr uint64_t kUnidentifiedMax = 64;
inline constexpr uint64_t kDeclinesLoggedMax = 64;
inline constexpr int64_t kHelloTimeoutNs = 3'000'000'000;

inline constexpr uint64_t kChannelsMax = 4096;         // subgroups open at once, the job among them
inline constexpr uint64_t kChannelNamesMax = 1 << 20;  // subgroups ever opened in one job
inline constexpr uint64_t kMissedWindowsMax = 1024;    // that one late rank has still to be told of
inline constexpr uint64_t kStoreKeysMax = 128 * 1024;
inline constexpr uint64_t kStoreBytesMax = 256ull * 1024 * 1024;
inline constexpr uint64_t kStoreWaitersPerRankMax = 1024;

inline constexpr int64_t kHeartbeatIntervalNs = 500'000'000;
inline constexpr int64_t kHeartbeatTimeoutNs = 5'000'000'000;

// Time after the first join at which rank 0 names the ranks that are missing.
inline constexpr int64_t kJoinNoticeNs = 5'000'000'000;

// How long a rank waits after its deadline for the coordinator to say whose fault it was.
inline constexpr int64_t kVerdictGraceNs = 500'000'000;

// How long ranks at different calls wait for the others, so that the error can say where everybody
// is.
inline constexpr int64_t kSettleNs = 200'000'000;

// How long rank 0 keeps the coordinator for ranks that have not said BYE when rank 0 itself is
// done.
inline constexpr int64_t kLingerNs = 2'000'000'000;

// The longest frame that the coordinator sends to a rank of such a job: a release with a record of
// every rank, or a proposal.
constexpr uint64_t ReleaseFrameBytesMax(int world_size) {
  const uint64_t records =
      static_cast<uint64_t>(world_size) * (RankExchange::kRecordBytesMax + 16) + kFrameSlackBytes;
  return records > kProposalFrameBytesMax ? records : kProposalFrameBytesMax;
}

// Bytes that may wait until a rank reads them: two of the longest frames, and an answer to each of
// the reads of the store that it may have open at once.
constexpr uint64_t OutboxBytesMax(int world_size) {
  return 2 * ReleaseFrameBytesMax(world_size) + kStoreWaitersPerRankMax * kFrameBytesMax;
}

// a + b for times, where a sum beyond the end of time is the end of time.
constexpr int64_t AddNs(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return b > 0 ? INT64_MAX : INT64_MIN;
  return sum;
}

// From now to the deadline, as it travels; a deadline without end stays one. AddNs(now, left) of
// the receiver is the deadline on its clock.
constexpr int64_t LeftNs(int64_t deadline_ns, int64_t now_ns) {
  int64_t left_ns = 0;
  if (deadline_ns == INT64_MAX) return INT64_MAX;
  if (__builtin_sub_overflow(deadline_ns, now_ns, &left_ns))
    return now_ns > 0 ? INT64_MIN : INT64_MAX;
  return left_ns;
}

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_WIRE_LIMITS_H_
