#include "core/selection/verdict.h"

#include <algorithm>

namespace cotune {

const char* OutcomeName(Outcome outcome) {
  switch (outcome) {
    case Outcome::kTimed:
      return "timed";
    case Outcome::kOutpaced:
      return "outpaced";
    case Outcome::kPrecompileFailed:
      return "precompile_failed";
    case Outcome::kLaunchFailed:
      return "launch_failed";
    case Outcome::kWrongResult:
      return "wrong_result";
    case Outcome::kDeadline:
      return "deadline";
    case Outcome::kLostHeat:
      return "lost_heat";
  }
  return "invalid";
}

const char* StartModeName(StartMode mode) {
  switch (mode) {
    case StartMode::kWindow:
      return "window";
    case StartMode::kBarrier:
      return "barrier";
    case StartMode::kDevice:
      return "device";
  }
  return "invalid";
}

bool CellResult::operator==(const CellResult& other) const {
  const auto same_refusal = [](const Refusal& a, const Refusal& b) {
    return a.choice == b.choice && a.reason == b.reason;
  };
  return problem == other.problem && verdicts == other.verdicts &&
         std::equal(refusals.begin(), refusals.end(), other.refusals.begin(), other.refusals.end(),
                    same_refusal) &&
         start_mode == other.start_mode && invalid_rounds == other.invalid_rounds &&
         buffer_copies == other.buffer_copies && sm_clock_mhz == other.sm_clock_mhz &&
         throttle_reasons == other.throttle_reasons && is_unsteady == other.is_unsteady;
}

}  // namespace cotune
