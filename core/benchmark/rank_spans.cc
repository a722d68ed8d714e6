#include "core/benchmark/rank_spans.h"

namespace cotune {

SampleSpan SpanOverRanks(const ExchangedRecords<TakenSample>& all) {
  int64_t first_start_ns = INT64_MAX;
  int64_t last_start_ns = INT64_MIN;
  int64_t last_end_ns = INT64_MIN;
  for (const StepRecord<TakenSample>& record : all.records) {
    const RankSpan& span = record.message.span;
    first_start_ns = std::min(first_start_ns, span.start_elapsed_ns);
    last_start_ns = std::max(last_start_ns, span.start_elapsed_ns);
    last_end_ns = std::max(last_end_ns, span.start_elapsed_ns + span.duration_ns);
  }
  return {last_end_ns - first_start_ns, last_start_ns - first_start_ns, last_start_ns};
}

}  // namespace cotune
