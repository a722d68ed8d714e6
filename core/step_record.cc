#include "core/step_record.h"

#include "core/step_record.pb.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {

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
  const int last_code = 1 + static_cast<int>(ErrorCode::kInterrupted);
  if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
      message.error_code() < 0 || message.error_code() > last_code) {
    return Fail(ErrorCode::kInternal, "a step record of another rank cannot be read", "",
                "the ranks run different versions of cotune", "start all ranks from one build");
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
  // Who says the same says it once; in the order of the first who does.
  std::vector<std::pair<std::string_view, std::vector<int>>> ranks_by_message;
  for (size_t rank = 0; rank < records.size(); ++rank) {
    const StepRecord& record = records[rank];
    if (!record.error) continue;
    if (!failure) failure = Error{*record.error, "", "", "", "", {}};
    // An aborted rank only heard of a failure: the code is that of a rank that had one.
    if (failure->code == ErrorCode::kAborted) failure->code = *record.error;
    failure->ranks.push_back(static_cast<int>(rank));
    auto said = std::find_if(ranks_by_message.begin(), ranks_by_message.end(),
                             [&](const auto& each) { return each.first == record.message; });
    if (said == ranks_by_message.end()) said = ranks_by_message.insert(said, {record.message, {}});
    said->second.push_back(static_cast<int>(rank));
  }
  for (const auto& [message, ranks] : ranks_by_message) {
    if (failure->what.size() >= StepRecord::kMessageBytesMax) break;
    failure->what += fmt::format("{}rank{} {}: {}", failure->what.empty() ? "" : "; ",
                                 ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "), message);
  }
  return failure;
}

Result<ExchangedRecords> ExchangeRecords(RankExchange& exchange, std::string_view step,
                                         const StepRecord& record, int64_t start_delay_ns,
                                         int64_t deadline_ns) {
  Result<StepResult> result =
      exchange.Step(step, EncodeStepRecord(record), start_delay_ns, deadline_ns);
  if (!result) return tl::make_unexpected(result.error());
  ExchangedRecords exchanged;
  exchanged.start_ns = result->start_ns;
  exchanged.coordinator_now_ns = result->coordinator_now_ns;
  for (const std::string& bytes : result->records) {
    Result<StepRecord> decoded = DecodeStepRecord(bytes);
    if (!decoded) return tl::make_unexpected(decoded.error());
    exchanged.records.push_back(std::move(*decoded));
  }
  return exchanged;
}

}  // namespace cotune
