#include "core/ranks/step_record.h"

#include <algorithm>
#include <type_traits>

#include "core/base/check.h"
#include "core/base/little_endian.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {

tl::unexpected<Error> UnreadableRecord() {
  return Fail(ErrorCode::kInternal, "a step record of another rank cannot be read", "",
              "the ranks run different versions of cotune", "start all ranks from one build");
}

tl::unexpected<Error> TuneInterrupted() {
  return Fail(ErrorCode::kInterrupted, "the tune was interrupted");
}

tl::unexpected<Error> OtherMessage(std::string_view step, std::string_view expected,
                                   const StepMessage& received, int job_rank) {
  const std::string_view name =
      std::visit([](const auto& message) { return message.kName; }, received);
  return Fail(ErrorCode::kInternal,
              fmt::format("the ranks are at different steps: rank {} sent '{}' where this rank "
                          "expects '{}'",
                          job_rank, name, expected),
              std::string(step), "the ranks run different programs or versions of cotune",
              "start all ranks from one build with the same arguments", {job_rank});
}

std::optional<StepFailure> FailureOf(const Status& status) {
  if (status) return std::nullopt;
  return StepFailure{status.error().code, status.error().ToText()};
}

namespace {

// Returns whether the text names ranks by their numbers, as "rank 2: no memory" does.
bool NamesRanks(std::string_view text) {
  for (const std::string_view word : {"rank ", "ranks "}) {
    for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
      const size_t number = at + word.size();
      if (number < text.size() && text[number] >= '0' && text[number] <= '9') return true;
    }
  }
  return false;
}

// Returns whether the text is one of the others after the name of a rank: "job rank 2 (rank 2 of
// the group): no memory".
bool RepeatsAnother(std::string_view text, const std::vector<std::string_view>& texts) {
  return std::any_of(texts.begin(), texts.end(), [&](std::string_view other) {
    if (other.empty() || text.size() <= other.size() + 2 || !text.ends_with(other)) return false;
    text.remove_suffix(other.size());
    return text.ends_with(": ") && NamesRanks(text);
  });
}

}  // namespace

std::string TextOfRanks(const std::vector<std::string_view>& texts,
                        const std::vector<int>& job_ranks, size_t bytes_max) {
  COTUNE_CHECK(texts.size() == job_ranks.size(), "every rank has an entry");
  // In the order of the first rank that has the text.
  std::vector<std::pair<std::string_view, std::vector<int>>> ranks_by_text;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty() || RepeatsAnother(texts[rank], texts)) continue;
    auto found = std::find_if(ranks_by_text.begin(), ranks_by_text.end(),
                              [&](const auto& each) { return each.first == texts[rank]; });
    if (found == ranks_by_text.end()) found = ranks_by_text.insert(found, {texts[rank], {}});
    found->second.push_back(job_ranks[rank]);
  }
  // All ranks have this text from a step before, in which they have named the ranks.
  const bool is_of_all = ranks_by_text.size() == 1 && texts.size() > 1 &&
                         ranks_by_text.front().second.size() == texts.size();
  if (is_of_all && NamesRanks(texts.front())) return std::string(texts.front());
  std::string whole;
  for (const auto& [text, ranks] : ranks_by_text) {
    if (whole.size() >= bytes_max) return whole + "; and others";
    whole += fmt::format("{}rank{} {}: {}", whole.empty() ? "" : "; ", ranks.size() == 1 ? "" : "s",
                         fmt::join(ranks, ", "), text);
  }
  return whole;
}

std::optional<Error> FirstFailureOf(const std::vector<const StepFailure*>& failures,
                                    const std::vector<int>& job_ranks) {
  COTUNE_CHECK(failures.size() == job_ranks.size(), "every rank has an entry");
  std::optional<Error> first;
  std::vector<std::string_view> texts(failures.size());
  for (size_t rank = 0; rank < failures.size(); ++rank) {
    const StepFailure* const failure = failures[rank];
    if (failure == nullptr) continue;
    if (!first) first = Error{failure->code, "", "", "", "", {}};
    // An aborted rank only learned of a failure: the code is that of a rank that had one.
    if (first->code == ErrorCode::kAborted) first->code = failure->code;
    first->ranks.push_back(job_ranks[rank]);
    texts[rank] = failure->text;
  }
  if (!first) return first;
  // Ascending, as everywhere; a subgroup may list its ranks in another order.
  std::sort(first->ranks.begin(), first->ranks.end());
  first->what = TextOfRanks(texts, job_ranks, StepFailure::kTextBytesMax);
  return first;
}

namespace {

// A record travels in parts. The first begins with the number of all parts.
constexpr size_t kPartCountBytes = sizeof(uint32_t);
constexpr size_t kPartBytes = RankExchange::kRecordBytesMax - kPartCountBytes;
constexpr size_t kPartsMax = (kStepRecordBytesMax + kPartBytes - 1) / kPartBytes;
// The names of the steps repeat so much of the given name. They may have the id of a choice in
// them, which has no largest length. Later parts add their number.
constexpr size_t kNameBytesMax = 200;
constexpr size_t kPartTextBytesMax = 40;
static_assert(kNameBytesMax + kPartTextBytesMax <= RankExchange::kStepNameBytesMax);

size_t CountParts(std::string_view record) {
  return std::max<size_t>(1, (record.size() + kPartBytes - 1) / kPartBytes);
}

// Empty behind the end of the record.
std::string_view PartOf(std::string_view record, size_t part) {
  return record.substr(std::min(part * kPartBytes, record.size()), kPartBytes);
}

std::string EncodeOrSayTooLong(std::string_view step, const AnyStepRecord& record) {
  std::string bytes = EncodeStepRecord(record);
  if (bytes.size() <= kStepRecordBytesMax) return bytes;
  AnyStepRecord failed = AnyStepRecord::FromStatus(Fail(
      ErrorCode::kInternal, fmt::format("the record of step '{}' has {} bytes", step, bytes.size()),
      "", fmt::format("at most {} bytes can be exchanged", kStepRecordBytesMax),
      "tune fewer choices at once"));
  // Still a message of this step.
  std::visit([&](const auto& message) { failed.message = std::decay_t<decltype(message)>{}; },
             record.message);
  return EncodeStepRecord(failed);
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

Result<EncodedRecords> ExchangeEncoded(RankExchange& exchange, std::string_view step,
                                       const AnyStepRecord& record, int64_t start_delay_ns,
                                       int64_t deadline_ns) {
  step = step.substr(0, kNameBytesMax);
  const std::string bytes = EncodeOrSayTooLong(step, record);
  std::string first;
  AppendLittleEndian(static_cast<uint32_t>(CountParts(bytes)), first);
  first += PartOf(bytes, 0);
  Result<StepResult> result = exchange.Step(step, first, start_delay_ns, deadline_ns);
  COTUNE_RETURN_IF_ERROR(result);
  std::vector<std::string> all = std::move(result->records);
  COTUNE_TRY(const size_t parts, TakePartCounts(all));
  for (size_t part = 1; part < parts; ++part) {
    result = exchange.Step(fmt::format("{} (part {} of {})", step, part + 1, parts),
                           PartOf(bytes, part), start_delay_ns, deadline_ns);
    COTUNE_RETURN_IF_ERROR(result);
    for (size_t rank = 0; rank < all.size(); ++rank) all[rank] += result->records[rank];
  }
  return EncodedRecords{std::move(all), result->elapsed_ns, result->start_elapsed_ns,
                        result->job_begin_ns};
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
    COTUNE_TRY(const std::string next, exchange.Broadcast(own, deadline_ns));
    *whole += next;
  }
  return whole;
}

}  // namespace cotune
