#include "core/benchmark/rank_spans.h"

namespace cotune {

ExchangedRecords<TakenSample> SampleOfRanks(const ExchangedRecords<TakenSamples>& all, size_t at) {
  ExchangedRecords<TakenSample> of_sample;
  of_sample.job_ranks = all.job_ranks;
  for (const StepRecord<TakenSamples>& record : all.records) {
    StepRecord<TakenSample>& each = of_sample.records.emplace_back();
    if (at < record.message.samples.size()) {
      each = {record.message.samples[at].failure, {record.message.samples[at].span}};
    } else if (record.failure) {
      each.failure = record.failure;
    } else {
      each.failure = FailureOf(
          Fail(ErrorCode::kInternal, "the rank has taken fewer samples than other ranks"));
    }
  }
  return of_sample;
}

}  // namespace cotune
