#include "core/benchmark/preparation.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {
namespace {

constexpr size_t kReasonBytesMax = 200;   // of each choice in the record of prepared plans
constexpr size_t kReasonsBytesMax = 600;  // of all ranks in a verdict

// Why choice `i` failed, by rank; a reason that several ranks give is said once. "": it did not.
std::string ReasonsOf(size_t i, const ExchangedRecords<PreparedChoices>& all) {
  const auto& records = all.records;
  std::string text;
  std::set<std::string_view> said;
  for (const auto& record : records) {
    const std::string& reason = record.message.reasons[i];
    if (reason.empty() || !said.insert(reason).second) continue;
    std::vector<int> ranks;
    for (size_t rank = 0; rank < records.size(); ++rank) {
      if (records[rank].message.reasons[i] == reason) ranks.push_back(all.job_ranks[rank]);
    }
    if (text.size() >= kReasonsBytesMax) return text + "; and others";
    text += fmt::format("{}rank{} {}: {}", text.empty() ? "" : "; ", ranks.size() == 1 ? "" : "s",
                        fmt::join(ranks, ", "), reason);
  }
  return text;
}

}  // namespace

Result<PreparedCell> Preparation::Run(std::span<RacingChoice> choices) {
  Result<PreparedCell> prepared = AllocateBuffers();
  if (!prepared) return prepared;
  const Status copies_added = prepared->buffers->AddCopies(copies_);
  COTUNE_RETURN_IF_ERROR(PrepareChoices(copies_added, choices));
  return prepared;
}

Result<std::unique_ptr<CellOperands>> Preparation::MakeBuffers() {
  if (kept_ != nullptr) {
    COTUNE_RETURN_IF_ERROR(kept_->FillForTiming(kept_->copies()));
    return std::move(kept_);
  }
  const bool is_symmetric = problem_.cls.buffer_class == BufferClass::kSymmetric;
  return CellOperands::Allocate(parts_.device, program_, problem_, parts_.exchange.rank(),
                                is_symmetric ? parts_.symmetric : nullptr, parts_.reference);
}

Result<PreparedCell> Preparation::AllocateBuffers() {
  PreparedCell prepared;
  const bool are_kept = kept_ != nullptr;
  Result<std::unique_ptr<CellOperands>> buffers = MakeBuffers();
  StepRecord<CellBuffers> record;
  if (buffers) {
    const int32_t wanted =
        CellOperands::WantedCopies(program_, problem_, parts_.device.cache_bytes());
    record.message.affordable_copies =
        are_kept ? (*buffers)->copies() : (*buffers)->AffordableCopies(wanted);
    prepared.clocks_before = parts_.device.ReadClocks();
    record.message.knows_clocks = prepared.clocks_before.has_value();
  } else {
    record = StepRecord<CellBuffers>::FromStatus(Propagate(buffers));
  }
  record.message.is_asked_to_stop = parts_.observer.StopRequested();
  COTUNE_TRY(const auto all, steps_.Exchange("buffers", record));
  for (const auto& other : all.records) {
    if (other.message.is_asked_to_stop) {
      return TuneInterrupted();
    }
  }
  if (std::optional<Error> failure = all.FirstFailure()) return tl::make_unexpected(*failure);
  prepared.buffers = std::move(*buffers);
  // As many on every rank, so that all read from memory or none does.
  copies_ = record.message.affordable_copies;
  for (const auto& other : all.records) {
    copies_ = std::min(copies_, other.message.affordable_copies);
    prepared.some_know_clocks = prepared.some_know_clocks || other.message.knows_clocks;
  }
  copies_ = std::max(copies_, 1);
  return prepared;
}

Status Preparation::Prepare(RacingChoice& choice, int64_t deadline_ns) {
  // The others have their plan already.
  if (!choice.caller->choice().prepare_is_collective) return choice.caller->Precompile(deadline_ns);
  const ScopedSpan compile(parts_.observer, SpanKind::kCompile, std::string(kCompileSpan),
                           ToText(problem_.cls), choice.caller->id().text());
  return choice.caller->Precompile(deadline_ns);
}

Status Preparation::PrepareChoices(const Status& copies_added, std::span<RacingChoice> choices) {
  auto record = StepRecord<PreparedChoices>::FromStatus(copies_added);
  const int64_t deadline_ns = parts_.CallDeadlineNs();
  for (RacingChoice& choice : choices) {
    // Plans that are made alone were made, and noted, before.
    const bool is_noted =
        parts_.note_attempt != nullptr && choice.caller->choice().prepare_is_collective;
    if (is_noted) parts_.note_attempt(problem_, &choice.caller->id());
    const Status prepared = Prepare(choice, deadline_ns);
    if (is_noted) parts_.note_attempt(problem_, nullptr);
    record.message.reasons.push_back(
        prepared ? "" : prepared.error().ToText().substr(0, kReasonBytesMax));
  }
  COTUNE_TRY(const auto all, steps_.Exchange("prepared", record));
  if (std::optional<Error> failure = all.FirstFailure()) return tl::make_unexpected(*failure);
  for (const auto& other : all.records) {
    if (other.message.reasons.size() != choices.size()) {
      return Fail(ErrorCode::kInternal, "ranks race different numbers of choices", steps_.label());
    }
  }
  for (size_t i = 0; i < choices.size(); ++i) {
    std::string reason = ReasonsOf(i, all);
    if (reason.empty()) continue;
    choices[i].has_failed = true;
    choices[i].verdict.outcome = Outcome::kPrecompileFailed;
    choices[i].verdict.reason = std::move(reason);
  }
  return {};
}

}  // namespace cotune
