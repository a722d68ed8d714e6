// The spans that all ranks timed in one step, as one time.
#ifndef COTUNE_CORE_BENCHMARK_RANK_SPANS_H_
#define COTUNE_CORE_BENCHMARK_RANK_SPANS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/backend/device.h"
#include "core/ranks/step_record.h"

namespace cotune {

// This rank's part of the step behind its timed calls; Message has a span. begin_ns: the job's
// begin on the clock of the span.
template <typename Message>
StepRecord<Message> RecordOf(const Result<TimedSpan>& span, int64_t begin_ns) {
  if (!span) return StepRecord<Message>::FromStatus(Propagate(span));
  StepRecord<Message> record;
  record.message.span = {span->start_ns - begin_ns, span->end_ns - span->start_ns};
  return record;
}

// The span of the slowest rank, at least 1.
template <typename Message>
int64_t LongestSpanNs(const ExchangedRecords<Message>& all) {
  int64_t longest_ns = 1;
  for (const StepRecord<Message>& record : all.records) {
    longest_ns = std::max(longest_ns, record.message.span.duration_ns);
  }
  return longest_ns;
}

// The sample of one choice on one rank.
struct TakenSample {
  RankSpan span{};
};

// Returns sample `at` of each rank; the failure of a rank's record counts for samples that the
// record lacks.
ExchangedRecords<TakenSample> SampleOfRanks(const ExchangedRecords<TakenSamples>& all, size_t at);

// From the first rank that starts to the last one that ends.
struct SampleSpan {
  int64_t span_ns = 0;
  int64_t skew_ns = 0;        // from the first start to the last
  int64_t last_start_ns = 0;  // since the job's begin
};
// Message has a span.
template <typename Message>
SampleSpan SpanOverRanks(const ExchangedRecords<Message>& all) {
  int64_t first_start_ns = INT64_MAX;
  int64_t last_start_ns = INT64_MIN;
  int64_t last_end_ns = INT64_MIN;
  for (const StepRecord<Message>& record : all.records) {
    const RankSpan& span = record.message.span;
    first_start_ns = std::min(first_start_ns, span.start_elapsed_ns);
    last_start_ns = std::max(last_start_ns, span.start_elapsed_ns);
    last_end_ns = std::max(last_end_ns, span.start_elapsed_ns + span.duration_ns);
  }
  return {last_end_ns - first_start_ns, last_start_ns - first_start_ns, last_start_ns};
}

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_RANK_SPANS_H_
