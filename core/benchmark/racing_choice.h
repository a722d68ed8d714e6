// One choice as it goes through the stages of a cell's benchmark.
#ifndef COTUNE_CORE_BENCHMARK_RACING_CHOICE_H_
#define COTUNE_CORE_BENCHMARK_RACING_CHOICE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/backend/call_watchdog.h"
#include "core/backend/device.h"
#include "core/choice/choice_caller.h"
#include "core/selection/verdict.h"

namespace cotune {

struct RacingChoice {
  ChoiceCaller* caller = nullptr;
  Verdict verdict;
  CallSubject subject;      // for the watchdog
  bool has_failed = false;  // on some rank; equal on all ranks
  int64_t check_ns = 0;     // one call on the slowest rank
  int64_t call_ns = 0;      // one of several calls in a row; 0: calibration has not timed them
  // One call of the calibration's sample by the spans of all ranks; 0: it had no untimed call.
  int64_t warm_ns = 0;
  int64_t warm_skew_ns = 0;  // between the ranks' starts in it
  bool is_checked = false;   // and calibrated, by this heat of the cell or an earlier one
  // Its samples in a race, of one call each, begin with an untimed call, as those of several do.
  bool adds_untimed_call = false;
  // The calls of a sample and their number; made when they are first needed.
  std::unique_ptr<TimedCalls> timed{};
  int32_t timed_repetitions = 0;
};

std::vector<RacingChoice> RacingChoicesOf(std::span<const std::unique_ptr<ChoiceCaller>> callers);

}  // namespace cotune

#endif  // COTUNE_CORE_BENCHMARK_RACING_CHOICE_H_
