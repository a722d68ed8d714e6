#include "integration/rank_zero_status.h"

#include <utility>

#include "core/ranks/step_record.h"

namespace cotune {

Status ShareRankZeroStatus(Job& job, const Status& own, std::string_view step) {
  const int64_t deadline_ns = job.clock().now_ns() + job.settings().warm_timeout_ns;
  COTUNE_TRY(const auto all, ExchangeRecords(job.exchange(), step,
                                             StepRecord<Done>::FromStatus(own), 0, deadline_ns));
  if (!own) return own;
  if (const std::optional<Error> failure = all.FirstFailure()) {
    // The text comes from rank 0 and is whole; which rank had it is not the user's concern.
    Error error = *failure;
    if (all.records[0].failure) error.what = all.records[0].failure->text;
    error.ranks.clear();
    return tl::make_unexpected(std::move(error));
  }
  return {};
}

}  // namespace cotune
