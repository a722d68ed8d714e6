// The spans that all ranks timed in one step, as one time.
#ifndef COTUNE_CORE_BENCHMARK_RANK_SPANS_H_
#define COTUNE_CORE_BENCHMARK_RANK_SPANS_H_

#include <cstdint>

#include "core/backend/device.h"
#include "core/ranks/step_record.h"

namespace cotune {

// This rank's part of the step behind its timed calls.
StepRecord RecordOf(const Result<TimedSpan>& span);

// The span of the slowest rank, at least 1.
int64_t LongestSpanNs(const ExchangedRecords& all);

// From the first rank that starts to the last one that ends.
struct SampleSpan {
  int64_t span_ns = 0;
  int64_t skew_ns = 0;        // from the first start to the last
  int64_t last_start_ns = 0;  // on the clock that the ranks share
};
SampleSpan SpanOverRanks(const ExchangedRecords& all);

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_RANK_SPANS_H_
