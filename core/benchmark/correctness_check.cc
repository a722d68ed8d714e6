#include "core/benchmark/correctness_check.h"

#include <string>
#include <utility>

#include "core/benchmark/rank_spans.h"
#include "fmt/format.h"

namespace cotune {
namespace {

uint64_t SumWrong(const ExchangedRecords<CheckedCall>& all) {
  uint64_t wrong = 0;
  for (const auto& record : all.records) wrong += record.message.wrong_elements;
  return wrong;
}

}  // namespace

StepRecord<CheckedCall> CorrectnessCheck::RunOnThisRank(RacingChoice& choice, CheckBy by,
                                                        uint32_t salt) {
  const int32_t copies = by == CheckBy::kCall ? 1 : buffers_.copies();
  if (Status filled = buffers_.Fill(salt, copies); !filled)
    return StepRecord<CheckedCall>::FromStatus(filled);
  auto record = RecordOf<CheckedCall>(
      by == CheckBy::kCall ? runs_.CallOnce(choice) : runs_.CallTimed(choice, copies, 0),
      runs_.SpanBeginNs());
  if (record.failure) return record;
  const Result<OperandCheck> check = buffers_.Check(salt, copies);
  if (!check) return StepRecord<CheckedCall>::FromStatus(Propagate(check));
  CheckedCall& call = record.message;
  call.wrong_elements = check->wrong_elements;
  if (check->wrong_elements > 0) call.mistake = "wrong values";
  if (check->wrote_outside) call.mistake = "wrote outside of its buffer";
  if (check->changed_send) call.mistake = "changed the send buffer";
  if (check->wrote_outside || check->changed_send) ++call.wrong_elements;
  return record;
}

Status CorrectnessCheck::Run(RacingChoice& choice, CheckBy by) {
  const StageSpan stage(parts_.observer, Stage::kCheck, choice.caller->id().text());
  const uint32_t salt = checks_++;
  COTUNE_TRY(const auto all, steps_.Exchange("check " + choice.caller->id().text(),
                                             RunOnThisRank(choice, by, salt)));
  if (const std::optional<Error> failure = all.FirstFailure()) {
    return removal_.RemoveFailed(choice, all, *failure);
  }
  choice.check_ns = LongestSpanNs(all);
  choice.verdict.wrong_elements = SumWrong(all);
  if (choice.verdict.wrong_elements == 0) return {};
  std::string reason;
  for (size_t rank = 0; rank < all.records.size(); ++rank) {
    const CheckedCall& other = all.records[rank].message;
    if (other.wrong_elements == 0) continue;
    reason += fmt::format("{}rank {}: {}", reason.empty() ? "" : "; ", all.job_ranks[rank],
                          other.mistake);
  }
  ChoiceRemoval::RemoveWrong(choice, std::move(reason));
  return {};
}

}  // namespace cotune
