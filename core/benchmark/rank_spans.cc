#include "core/benchmark/rank_spans.h"

#include <algorithm>

namespace cotune {

StepRecord RecordOf(const Result<TimedSpan>& span) {
  if (!span) return StepRecord::FromStatus(tl::make_unexpected(span.error()));
  StepRecord record;
  record.start_ns = span->start_ns;
  record.end_ns = span->end_ns;
  return record;
}

int64_t LongestSpanNs(const ExchangedRecords& all) {
  int64_t longest_ns = 1;
  for (const StepRecord& record : all.records) {
    longest_ns = std::max(longest_ns, record.end_ns - record.start_ns);
  }
  return longest_ns;
}

SampleSpan SpanOverRanks(const ExchangedRecords& all) {
  int64_t first_start_ns = INT64_MAX;
  int64_t last_start_ns = INT64_MIN;
  int64_t last_end_ns = INT64_MIN;
  for (const StepRecord& record : all.records) {
    first_start_ns = std::min(first_start_ns, record.start_ns);
    last_start_ns = std::max(last_start_ns, record.start_ns);
    last_end_ns = std::max(last_end_ns, record.end_ns);
  }
  return {last_end_ns - first_start_ns, last_start_ns - first_start_ns, last_start_ns};
}

}  // namespace cotune
