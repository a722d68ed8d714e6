#include "core/ranks/step_record.h"

#include <algorithm>

#include "core/base/little_endian.h"
#include "core/ranks/step_record.pb.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {
namespace {

tl::unexpected<Error> UnreadableRecord() {
  return Fail(ErrorCode::kInternal, "a step record of another rank cannot be read", "",
              "the ranks run different versions of cotune", "start all ranks from one build");
}

}  // namespace

StepRecord StepRecord::FromStatus(const Status& status) {
  StepRecord record;
  if (!status) {
    record.error = status.error().code;
    record.message = status.error().ToText();
  }
  return record;
}

std::string EncodeStepRecord(const StepRecord& record) {
  proto::StepRecord message;
  if (record.error) message.set_error_code(1 + static_cast<int>(*record.error));
  message.set_message(record.message.substr(0, StepRecord::kMessageBytesMax));
  message.set_wrong_elements(record.wrong_elements);
  message.set_start_ns(record.start_ns);
  message.set_end_ns(record.end_ns);
  message.set_number(record.number);
  for (const std::string& item : record.items) message.add_items(item);
  return message.SerializeAsString();
}

Result<StepRecord> DecodeStepRecord(std::string_view bytes) {
  proto::StepRecord message;
  const int last_code = 1 + static_cast<int>(ErrorCode::kDisagreement);
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
      message.error_code() < 0 || message.error_code() > last_code) {
    return UnreadableRecord();
  }
  StepRecord record;
  if (message.error_code() > 0) record.error = static_cast<ErrorCode>(message.error_code() - 1);
  record.message = message.message();
  record.wrong_elements = message.wrong_elements();
  record.start_ns = message.start_ns();
  record.end_ns = message.end_ns();
  record.number = message.number();
  record.items.assign(message.items().begin(), message.items().end());
  return record;
}

std::optional<Error> ExchangedRecords::FirstFailure() const {
  std::optional<Error> failure;
  // Equal messages are reported once, in the order of the first rank that has them.
  std::vector<std::pair<std::string_view, std::vector<int>>> ranks_by_message;
  for (size_t rank = 0; rank < records.size(); ++rank) {
    const StepRecord& record = records[rank];
    if (!record.error) continue;
    if (!failure) failure = Error{*record.error, "", "", "", "", {}};
    // An aborted rank only heard of a failure: the code is that of a rank that had one.
    if (failure->code == ErrorCode::kAborted) failure->code = *record.error;
    failure->ranks.push_back(job_ranks[rank]);
    auto said = std::find_if(ranks_by_message.begin(), ranks_by_message.end(),
                             [&](const auto& each) { return each.first == record.message; });
    if (said == ranks_by_message.end()) said = ranks_by_message.insert(said, {record.message, {}});
    said->second.push_back(job_ranks[rank]);
  }
  // Ascending, as everywhere; a subgroup may list its ranks in another order.
  if (failure) std::sort(failure->ranks.begin(), failure->ranks.end());
  for (const auto& [message, ranks] : ranks_by_message) {
    if (failure->what.size() >= StepRecord::kMessageBytesMax) break;
    failure->what += fmt::format("{}rank{} {}: {}", failure->what.empty() ? "" : "; ",
                                 ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "), message);
  }
  return failure;
}

namespace {

// A record travels in parts. The first begins with the number of all parts.
constexpr size_t kPartCountBytes = sizeof(uint32_t);
constexpr size_t kPartBytes = RankExchange::kRecordBytesMax - kPartCountBytes;
constexpr size_t kPartsMax = (kStepRecordBytesMax + kPartBytes - 1) / kPartBytes;
// Names of later parts repeat so much of the step's name; a name has at most 255 characters.
constexpr size_t kStepNameBytesMax = 200;

size_t CountParts(std::string_view record) {
  return std::max<size_t>(1, (record.size() + kPartBytes - 1) / kPartBytes);
}

// Empty behind the end of the record.
std::string_view PartOf(std::string_view record, size_t part) {
  return record.substr(std::min(part * kPartBytes, record.size()), kPartBytes);
}

std::string EncodeOrSayTooLong(std::string_view step, const StepRecord& record) {
  std::string bytes = EncodeStepRecord(record);
  if (bytes.size() <= kStepRecordBytesMax) return bytes;
  return EncodeStepRecord(StepRecord::FromStatus(
      Fail(ErrorCode::kInternal,
           fmt::format("the record of step '{}' has {} bytes", step.substr(0, kStepNameBytesMax),
                       bytes.size()),
           "", fmt::format("at most {} bytes can be exchanged", kStepRecordBytesMax),
           "tune fewer choices at once")));
}

// Removes the part counts in front of the first parts and returns the largest.
Result<size_t> TakePartCounts(std::vector<std::string>& first_parts) {
  size_t parts = 1;
  for (std::string& bytes : first_parts) {
    const size_t count = bytes.size() < kPartCountBytes ? 0 : ReadLittleEndian<uint32_t>(bytes);
    if (count < 1 || count > kPartsMax) return UnreadableRecord();
    parts = std::max(parts, count);
    bytes.erase(0, kPartCountBytes);
  }
  return parts;
}

}  // namespace

Result<ExchangedRecords> ExchangeRecords(RankExchange& exchange, std::string_view step,
                                         const StepRecord& record, int64_t start_delay_ns,
                                         int64_t deadline_ns) {
  const std::string bytes = EncodeOrSayTooLong(step, record);
  std::string first;
  AppendLittleEndian(static_cast<uint32_t>(CountParts(bytes)), first);
  first += PartOf(bytes, 0);
  Result<StepResult> result = exchange.Step(step, first, start_delay_ns, deadline_ns);
  if (!result) return tl::make_unexpected(result.error());
  std::vector<std::string> all = std::move(result->records);
  const Result<size_t> parts = TakePartCounts(all);
  if (!parts) return tl::make_unexpected(parts.error());
  for (size_t part = 1; part < *parts; ++part) {
    result = exchange.Step(
        fmt::format("{} (part {} of {})", step.substr(0, kStepNameBytesMax), part + 1, *parts),
        PartOf(bytes, part), start_delay_ns, deadline_ns);
    if (!result) return tl::make_unexpected(result.error());
    for (size_t rank = 0; rank < all.size(); ++rank) all[rank] += result->records[rank];
  }
  ExchangedRecords exchanged;
  exchanged.start_ns = result->start_ns;
  exchanged.coordinator_now_ns = result->coordinator_now_ns;
  for (const std::string& each : all) {
    Result<StepRecord> decoded = DecodeStepRecord(each);
    if (!decoded) return tl::make_unexpected(decoded.error());
    exchanged.job_ranks.push_back(exchange.job_rank(static_cast<int>(exchanged.records.size())));
    exchanged.records.push_back(std::move(*decoded));
  }
  return exchanged;
}

Result<std::string> BroadcastInParts(RankExchange& exchange, std::string_view bytes,
                                     int64_t deadline_ns) {
  constexpr size_t kBytes = RankExchange::kProposalBytesMax - kPartCountBytes;
  const bool is_too_long = bytes.size() > kBroadcastBytesMax;
  if (is_too_long) bytes = {};  // the number of parts, 0, tells the others
  const size_t own_parts =
      is_too_long ? 0 : std::max<size_t>(1, (bytes.size() + kBytes - 1) / kBytes);
  std::string first;
  AppendLittleEndian(static_cast<uint32_t>(own_parts), first);
  first += bytes.substr(0, kBytes);
  Result<std::string> whole = exchange.Broadcast(exchange.rank() == 0 ? first : "", deadline_ns);
  if (!whole) return whole;
  if (whole->size() < kPartCountBytes) return UnreadableRecord();
  const size_t parts = ReadLittleEndian<uint32_t>(*whole);
  if (parts == 0) {
    return Fail(ErrorCode::kInternal, "rank 0 has more to tell than can be exchanged", "",
                fmt::format("at most {} bytes can be", kBroadcastBytesMax),
                "tune fewer collectives and sizes at once");
  }
  whole->erase(0, kPartCountBytes);
  for (size_t part = 1; part < parts; ++part) {
    const std::string_view own = exchange.rank() == 0 ? bytes.substr(part * kBytes, kBytes) : "";
    const Result<std::string> next = exchange.Broadcast(own, deadline_ns);
    if (!next) return tl::make_unexpected(next.error());
    *whole += *next;
  }
  return whole;
}

}  // namespace cotune
