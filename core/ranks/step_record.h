// Small records that ranks exchange in the steps of a tune.
#ifndef COTUNE_CORE_RANKS_STEP_RECORD_H_
#define COTUNE_CORE_RANKS_STEP_RECORD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/ranks/rank_exchange.h"

namespace cotune {

// One rank's part of a step.
struct StepRecord {
  std::optional<ErrorCode> error;  // what this rank did before the step failed
  std::string message;             // of the failure; cut to kMessageBytesMax
  uint64_t wrong_elements = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;
  int64_t number = 0;              // meaning depends on the step
  std::vector<std::string> items;  // meaning depends on the step

  static constexpr size_t kMessageBytesMax = 1000;
  static StepRecord FromStatus(const Status& status);
  bool operator==(const StepRecord&) const = default;
};

std::string EncodeStepRecord(const StepRecord& record);
// kInternal when the bytes are not a record.
Result<StepRecord> DecodeStepRecord(std::string_view bytes);

// All ranks' records of one step.
struct ExchangedRecords {
  std::vector<StepRecord> records;  // [world_size], by rank
  std::vector<int> job_ranks;       // [world_size]: what texts and errors call these ranks
  int64_t start_ns = 0;
  int64_t coordinator_now_ns = 0;

  // The first failure over ranks: its code (kAborted only when all were aborted), "rank 2: message;
  // ranks 0, 3: other message", and the ranks; ranks of the job. nullopt: all fine.
  std::optional<Error> FirstFailure() const;
};

// The largest record, encoded; a longer one is sent as a failure that says so.
inline constexpr uint64_t kStepRecordBytesMax = 256 * RankExchange::kRecordBytesMax;

// Sends this rank's record and returns those of all ranks. It takes one RankExchange::Step where
// every rank's record fits in one; otherwise all ranks take as many steps as the longest record
// needs, all before deadline_ns, and the start that start_delay_ns asks for is that of the last
// one. A record beyond kStepRecordBytesMax is replaced by a failure, so that no rank leaves before
// its peers have heard of it. Each rank holds the records of all ranks.
Result<ExchangedRecords> ExchangeRecords(RankExchange& exchange, std::string_view step,
                                         const StepRecord& record, int64_t start_delay_ns,
                                         int64_t deadline_ns);

// Rank 0's bytes (others pass "") on every rank, in as many RankExchange::Broadcast as they need.
// kInternal on all ranks when they are more than kBroadcastBytesMax.
inline constexpr uint64_t kBroadcastBytesMax = 16 * RankExchange::kProposalBytesMax;
Result<std::string> BroadcastInParts(RankExchange& exchange, std::string_view bytes,
                                     int64_t deadline_ns);

}  // namespace cotune

#endif  // COTUNE_CORE_RANKS_STEP_RECORD_H_
