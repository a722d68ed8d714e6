#include "sync/machine/job_clock.h"

#include <algorithm>

#include "sync/wire/limits.h"

namespace cotune::sync {

void JobClock::OnRoundTrip(const RoundTrip& trip) {
  // held_ns was counted by a clock of another rate, which may even make it the longer one.
  const int64_t half_ns = std::max<int64_t>(0, trip.received_ns - trip.sent_ns - trip.held_ns) / 2;
  const int64_t error_ns = half_ns + trip.held_ns / kDriftMax + 1;
  // An estimate gets worse with its age, so that a worse but newer one replaces it.
  if (error_ns > ErrorNs(trip.received_ns)) return;
  error_ns_ = error_ns;
  estimated_ns_ = trip.received_ns;
  begin_ns_ = trip.received_ns - half_ns - trip.elapsed_ns;
}

int64_t JobClock::ErrorNs(int64_t now_ns) const {
  return AddNs(error_ns_, std::max<int64_t>(0, now_ns - estimated_ns_) / kDriftMax);
}

}  // namespace cotune::sync
