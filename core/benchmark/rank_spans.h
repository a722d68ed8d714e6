// The spans that all ranks timed in one step, as one time.
#ifndef COTUNE_CORE_BENCHMARK_RANK_SPANS_H_
#define COTUNE_CORE_BENCHMARK_RANK_SPANS_H_

#include <algorithm>
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

// From the first rank that starts to the last one that ends.
struct SampleSpan {
  int64_t span_ns = 0;
  int64_t skew_ns = 0;        // from the first start to the last
  int64_t last_start_ns = 0;  // since the job's begin
};
SampleSpan SpanOverRanks(const ExchangedRecords<TakenSample>& all);

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_RANK_SPANS_H_
