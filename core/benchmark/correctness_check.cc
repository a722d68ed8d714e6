#include "core/benchmark/correctness_check.h"

#include <string>
#include <utility>

#include "core/benchmark/rank_spans.h"
#include "fmt/format.h"

namespace cotune {
namespace {

uint64_t SumWrong(const ExchangedRecords& all) {
  uint64_t wrong = 0;
  for (const StepRecord& record : all.records) wrong += record.wrong_elements;
  return wrong;
}

}  // namespace

StepRecord CorrectnessCheck::RunOnThisRank(RacingChoice& choice, CheckBy by, uint32_t salt) {
  const int32_t copies = by == CheckBy::kCall ? 1 : buffers_.copies();
  if (Status filled = buffers_.Fill(salt, copies); !filled) return StepRecord::FromStatus(filled);
  StepRecord record =
      RecordOf(by == CheckBy::kCall ? runs_.CallOnce(choice) : runs_.CallTimed(choice, copies, 0));
  if (record.error) return record;
  const Result<OperandCheck> check = buffers_.Check(salt, copies);
  if (!check) return StepRecord::FromStatus(tl::make_unexpected(check.error()));
  record.wrong_elements = check->wrong_elements;
  if (check->wrong_elements > 0) record.message = "wrong values";
  if (check->wrote_outside) record.message = "wrote outside of its buffer";
  if (check->changed_send) record.message = "changed the send buffer";
  if (check->wrote_outside || check->changed_send) ++record.wrong_elements;
  return record;
}

Status CorrectnessCheck::Run(RacingChoice& choice, CheckBy by) {
  parts_.observer.OnStage(Stage::kCheck);
  const uint32_t salt = checks_++;
  const StepRecord record = RunOnThisRank(choice, by, salt);
  const Result<ExchangedRecords> all =
      steps_.Exchange("check " + choice.caller->id().text(), record);
  if (!all) return tl::make_unexpected(all.error());
  if (const std::optional<Error> failure = all->FirstFailure()) {
    return removal_.RemoveFailed(choice, *all, *failure);
  }
  choice.check_ns = LongestSpanNs(*all);
  choice.verdict.wrong_elements = SumWrong(*all);
  if (choice.verdict.wrong_elements == 0) return {};
  std::string reason = fmt::format("{} wrong elements", choice.verdict.wrong_elements);
  for (size_t rank = 0; rank < all->records.size(); ++rank) {
    const StepRecord& other = all->records[rank];
    if (other.wrong_elements == 0) continue;
    reason += fmt::format("; rank {}: {}", all->job_ranks[rank], other.message);
  }
  ChoiceRemoval::RemoveWrong(choice, std::move(reason));
  return {};
}

}  // namespace cotune
