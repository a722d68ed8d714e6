// Small records that ranks exchange in the steps of a tune.
#ifndef COTUNE_CORE_RANKS_STEP_RECORD_H_
#define COTUNE_CORE_RANKS_STEP_RECORD_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/status.h"
#include "core/ranks/rank_exchange.h"
#include "core/ranks/step_messages.h"

namespace cotune {

std::optional<StepFailure> FailureOf(const Status& status);

// One rank's part of a step whose message has this type.
template <typename Message>
struct StepRecord {
  std::optional<StepFailure> failure{};
  Message message{};

  static StepRecord FromStatus(const Status& status) { return {FailureOf(status), Message{}}; }
  bool operator==(const StepRecord&) const = default;
};
using AnyStepRecord = StepRecord<StepMessage>;

std::string EncodeStepRecord(const AnyStepRecord& record);
// kInternal when the bytes are not a record.
Result<AnyStepRecord> DecodeStepRecord(std::string_view bytes);

// "rank 2: text; ranks 0, 3: other text" of the texts by rank, "" for a rank that has none. A text
// of several ranks stands once, and one that only repeats another rank's text after its name is
// left out. A text that all ranks have and that names ranks itself stands alone. "; and others"
// ends a text that has `bytes_max` bytes or more.
std::string TextOfRanks(const std::vector<std::string_view>& texts,
                        const std::vector<int>& job_ranks, size_t bytes_max);

// The text of TextOfRanks of failures by rank, with the code of the first (kAborted
// only when all were aborted) and the ranks of the job. nullopt: none failed.
std::optional<Error> FirstFailureOf(const std::vector<const StepFailure*>& failures,
                                    const std::vector<int>& job_ranks);

// The end of a tune that the user has asked to stop.
tl::unexpected<Error> TuneInterrupted();

// All ranks' records of one step.
template <typename Message>
struct ExchangedRecords {
  std::vector<StepRecord<Message>> records{};  // [world_size], by rank
  std::vector<int> job_ranks{};  // [world_size]: what texts and errors call these ranks
  // As in StepResult.
  int64_t elapsed_ns = 0;
  int64_t start_elapsed_ns = 0;
  int64_t job_begin_ns = 0;

  bool SomeFailedWith(ErrorCode code) const {
    return std::any_of(records.begin(), records.end(), [&](const StepRecord<Message>& record) {
      return record.failure && record.failure->code == code;
    });
  }
  std::optional<Error> FirstFailure() const {
    const bool is_fine =
        std::none_of(records.begin(), records.end(),
                     [](const StepRecord<Message>& record) { return record.failure.has_value(); });
    if (is_fine) return std::nullopt;
    std::vector<const StepFailure*> failures;
    for (const StepRecord<Message>& record : records) {
      failures.push_back(record.failure ? &*record.failure : nullptr);
    }
    return FirstFailureOf(failures, job_ranks);
  }
};

// The largest record, encoded; a longer one is sent as a failure that says so.
inline constexpr uint64_t kStepRecordBytesMax = 256 * RankExchange::kRecordBytesMax;

// The encoded records of one step, by rank.
struct EncodedRecords {
  std::vector<std::string> bytes{};
  // As in StepResult.
  int64_t elapsed_ns = 0;
  int64_t start_elapsed_ns = 0;
  int64_t job_begin_ns = 0;
};
Result<EncodedRecords> ExchangeEncoded(RankExchange& exchange, std::string_view step,
                                       const AnyStepRecord& record, int64_t start_delay_ns,
                                       int64_t deadline_ns);
// The error for bytes of another rank that are no record of this build.
tl::unexpected<Error> UnreadableRecord();
// The ranks are at different steps: one of them sent `received` in a step of `expected`.
tl::unexpected<Error> OtherMessage(std::string_view step, std::string_view expected,
                                   const StepMessage& received, int job_rank);

// Sends this rank's record and returns those of all ranks. It takes one RankExchange::Step where
// every rank's record fits in one; otherwise all ranks take as many steps as the longest record
// needs, all before deadline_ns, and the start that start_delay_ns asks for is that of the last
// one. A record beyond kStepRecordBytesMax is replaced by a failure, so that no rank leaves before
// its peers have heard of it. A long name is cut, so that its beginning tells steps apart. Each
// rank holds the records of all ranks. kInternal: a rank sent a message of another step, or bytes
// that are none.
template <typename Message>
Result<ExchangedRecords<Message>> ExchangeRecords(RankExchange& exchange, std::string_view step,
                                                  const StepRecord<Message>& record,
                                                  int64_t start_delay_ns, int64_t deadline_ns) {
  COTUNE_TRY(const EncodedRecords encoded,
             ExchangeEncoded(exchange, step, AnyStepRecord{record.failure, record.message},
                             start_delay_ns, deadline_ns));
  ExchangedRecords<Message> all;
  all.elapsed_ns = encoded.elapsed_ns;
  all.start_elapsed_ns = encoded.start_elapsed_ns;
  all.job_begin_ns = encoded.job_begin_ns;
  all.records.reserve(encoded.bytes.size());
  all.job_ranks.reserve(encoded.bytes.size());
  for (const std::string& bytes : encoded.bytes) {
    const int job_rank = exchange.job_rank(static_cast<int>(all.records.size()));
    COTUNE_TRY(AnyStepRecord decoded, DecodeStepRecord(bytes));
    auto* message = std::get_if<Message>(&decoded.message);
    if (message == nullptr) return OtherMessage(step, Message::kName, decoded.message, job_rank);
    all.records.push_back({std::move(decoded.failure), std::move(*message)});
    all.job_ranks.push_back(job_rank);
  }
  return all;
}

// Rank 0's bytes (others pass "") on every rank, in as many RankExchange::Broadcast as they need.
// kInternal on all ranks when they are more than kBroadcastBytesMax.
inline constexpr uint64_t kBroadcastBytesMax = 16 * RankExchange::kProposalBytesMax;
Result<std::string> BroadcastInParts(RankExchange& exchange, std::string_view bytes,
                                     int64_t deadline_ns);

}  // namespace cotune

#endif  // COTUNE_CORE_RANKS_STEP_RECORD_H_
