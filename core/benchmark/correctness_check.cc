#include "core/benchmark/correctness_check.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/benchmark/rank_spans.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {
namespace {

// That a call as a program makes it runs on.
constexpr int32_t kCopiesOfCall = 1;

uint64_t SumWrong(const ExchangedRecords<CheckedCall>& all) {
  uint64_t wrong = 0;
  for (const auto& record : all.records) wrong += record.message.wrong_elements;
  return wrong;
}

std::string RanksText(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

// The outputs whose hashes differ between ranks.
struct OutputDifferences {
  uint64_t count = 0;  // over all ranks: outputs that differ from those of most ranks
  std::string text{};  // "": there are none
};

// The rank whose hash most ranks have; of as many, the first.
size_t RankOfMost(const ExchangedRecords<CheckedCall>& all, size_t output) {
  size_t first = 0;
  int64_t most = 0;
  for (size_t rank = 0; rank < all.records.size(); ++rank) {
    const uint64_t hash = all.records[rank].message.replicated_hashes[output];
    const int64_t equal = std::count_if(
        all.records.begin(), all.records.end(),
        [&](const auto& other) { return other.message.replicated_hashes[output] == hash; });
    if (equal <= most) continue;
    most = equal;
    first = rank;
  }
  return first;
}

// From the records alone, so that all ranks find the same.
OutputDifferences DifferencesOf(const ExchangedRecords<CheckedCall>& all,
                                const std::vector<std::string>& outputs) {
  OutputDifferences differences;
  for (size_t output = 0; output < outputs.size(); ++output) {
    const CheckedCall& usual = all.records[RankOfMost(all, output)].message;
    std::vector<int> equal;
    std::vector<int> differing;
    for (size_t rank = 0; rank < all.records.size(); ++rank) {
      const CheckedCall& other = all.records[rank].message;
      const bool is_equal = other.replicated_hashes[output] == usual.replicated_hashes[output];
      (is_equal ? equal : differing).push_back(all.job_ranks[rank]);
    }
    if (differing.empty()) continue;
    differences.count += differing.size();
    differences.text +=
        fmt::format("{}{} has other bits on {} than on {}", differences.text.empty() ? "" : "; ",
                    outputs[output], RanksText(differing), RanksText(equal));
  }
  return differences;
}

}  // namespace

StepRecord<CheckedCall> CorrectnessCheck::RunOnThisRank(RacingChoice& choice, CheckBy by,
                                                        uint32_t salt) {
  StepRecord<CheckedCall> record = CheckOnThisRank(choice, by, salt);
  if (record.failure || by == CheckBy::kTimedCalls) return record;
  if (Status filled = buffers_.FillForTiming(kCopiesOfCall); !filled)
    return StepRecord<CheckedCall>::FromStatus(filled);
  return record;
}

StepRecord<CheckedCall> CorrectnessCheck::CheckOnThisRank(RacingChoice& choice, CheckBy by,
                                                          uint32_t salt) {
  const int32_t copies = by == CheckBy::kCall ? kCopiesOfCall : buffers_.copies();
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
  call.replicated_hashes = check->replicated_hashes;
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
    COTUNE_RETURN_IF_ERROR(removal_.RemoveFailed(choice, all, *failure));
    // The next choice is timed on the same buffers. A device that cannot fill them fails in its
    // check as well.
    if (by == CheckBy::kCall) (void)buffers_.FillForTiming(kCopiesOfCall);
    return {};
  }
  choice.check_ns = LongestSpanNs(all);
  choice.verdict.wrong_elements = SumWrong(all);
  if (choice.verdict.wrong_elements == 0) return CompareRanks(choice, all);
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

Status CorrectnessCheck::CompareRanks(RacingChoice& choice,
                                      const ExchangedRecords<CheckedCall>& all) const {
  const std::vector<std::string> outputs = buffers_.ReplicatedOutputs();
  for (const auto& record : all.records) {
    if (record.message.replicated_hashes.size() != outputs.size()) {
      return Fail(ErrorCode::kInternal, "ranks compare different numbers of outputs",
                  steps_.label());
    }
  }
  const OutputDifferences differences = DifferencesOf(all, outputs);
  if (differences.text.empty()) return {};
  if (!choice.caller->choice().is_reproducible) {
    choice.verdict.reason = "its bits depend on the rank: " + differences.text;
    return {};
  }
  choice.verdict.wrong_elements = differences.count;
  ChoiceRemoval::RemoveWrong(
      choice,
      "its bits depend on the rank, although it is listed as reproducible: " + differences.text);
  return {};
}

}  // namespace cotune
