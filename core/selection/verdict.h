// The results of measuring: plain data that travels from the benchmark to selection, database and
// explain.
#ifndef COTUNE_CORE_SELECTION_VERDICT_H_
#define COTUNE_CORE_SELECTION_VERDICT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/problem/choice_id.h"
#include "core/problem/problem.h"

namespace cotune {

// How a choice ended. Equal on all ranks. Values are written to files; append only.
enum class Outcome : uint8_t {
  kTimed = 1,     // measured to the end
  kOutpaced = 2,  // measured, then dropped from the race because another one was faster
  kPrecompileFailed = 3,
  kLaunchFailed = 4,
  kWrongResult = 5,
  kDeadline = 6,  // a launch did not finish in collective_autotune_timeout
  kLostHeat = 7,  // measured in the first of two heats, and not among those of the second
};
const char* OutcomeName(Outcome outcome);  // "timed", "outpaced", "precompile_failed", ...

// How the ranks were lined up in front of each sample. Values are written to files; append only.
enum class StartMode : uint8_t {
  kWindow = 1,   // a start time carried in the barrier's release
  kBarrier = 2,  // more ranks than cores: the release itself
  kDevice = 3,   // a barrier among the GPUs
};
const char* StartModeName(StartMode mode);  // "window", "barrier", "device"

// The result of one choice at one size, agreed by all ranks. Times are of one call, in ns: the
// largest end less the smallest start over ranks, divided by `repetitions`.
struct Verdict {
  ChoiceId id;
  Outcome outcome = Outcome::kTimed;
  bool is_default = false;
  std::string numerics{};  // as in Choice
  // The cause of a failure and the ranks that had it. A choice that has a time may have a note of
  // its checks here.
  std::string reason{};
  // The number over all ranks. An output whose bits depend on the rank counts as one on each rank
  // that differs from most.
  uint64_t wrong_elements = 0;
  std::vector<int64_t> samples_ns{};  // one a round, in order
  std::vector<int64_t> skews_ns{};    // of each sample: largest less smallest start over ranks
  int32_t repetitions = 0;            // calls in one sample
  int64_t median_ns = 0;              // 0 when there is no sample
  int64_t interval_low_ns =
      0;  // 99 % order-statistic interval of the median; under 8 samples the range
  int64_t interval_high_ns = 0;
  // The median of calls with their buffers in the cache; of choices that tie when they are not.
  // 0: not measured.
  int64_t warm_median_ns = 0;

  bool has_time() const { return median_ns > 0 && wrong_elements == 0; }
  bool operator==(const Verdict&) const = default;
};

// One program at one size with everything that was learned about it.
struct CellResult {
  Problem problem;
  // In the order of the choice list; of two heats, first those of the second.
  std::vector<Verdict> verdicts;
  std::vector<Refusal> refusals;
  StartMode start_mode = StartMode::kBarrier;
  int32_t invalid_rounds = 0;  // samples that did not count because a rank started late
  int32_t buffer_copies = 1;   // of send and receive buffer that timed calls went round over
  int32_t sm_clock_mhz = 0;    // of the slowest GPU after the last sample; 0: not known
  // The reasons that throttled a GPU when the measuring began or ended: "hw_thermal,sw_power_cap";
  // "": none is known.
  std::string throttle_reasons{};
  // The times of the choices varied too much to show which one is the fastest, also when they were
  // measured a second time: the default runs, and the next tune measures the cell again.
  bool is_unsteady = false;

  bool operator==(const CellResult& other) const;
};

}  // namespace cotune

#endif  // COTUNE_CORE_SELECTION_VERDICT_H_
