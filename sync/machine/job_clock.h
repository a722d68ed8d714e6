// The time since the job's begin, on the clock of a rank.
#ifndef COTUNE_SYNC_MACHINE_JOB_CLOCK_H_
#define COTUNE_SYNC_MACHINE_JOB_CLOCK_H_

#include <cstdint>

namespace cotune::sync {

// One call as a rank sees it, with the two durations that its release carries.
struct RoundTrip {
  int64_t sent_ns = 0;      // on the rank's clock
  int64_t received_ns = 0;  // on the rank's clock
  int64_t held_ns = 0;      // by the coordinator, between the arrival and the release
  int64_t elapsed_ns = 0;   // from the job's begin to the release
};

// Estimates when the job began on a clock that shares neither its zero nor its rate with the
// coordinator's, as NTP does: the release left the coordinator at a moment inside the round trip,
// and the middle of it is off by half its length at most. Pure.
class JobClock {
 public:
  void OnRoundTrip(const RoundTrip& trip);

  // The job's begin on the rank's clock. 0 before the first round trip.
  int64_t begin_ns() const { return begin_ns_; }
  // begin_ns() is off by no more, for clocks whose rates differ by at most kDriftMax.
  int64_t ErrorNs(int64_t now_ns) const;

  // A part in so many: 100 ns in a millisecond. Disciplined clocks differ by less.
  static constexpr int64_t kDriftMax = 10'000;

 private:
  int64_t begin_ns_ = 0;
  int64_t error_ns_ = INT64_MAX;  // when it was estimated
  int64_t estimated_ns_ = 0;
};

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_MACHINE_JOB_CLOCK_H_
