// Faults on purpose, for tests of what happens when a rank dies, stops or comes late.
#ifndef COTUNE_INTEGRATION_TESTING_FAULT_INJECTION_H_
#define COTUNE_INTEGRATION_TESTING_FAULT_INJECTION_H_

#include <climits>
#include <cstdint>
#include <memory>
#include <string_view>

#include "core/base/status.h"
#include "core/events/stage_observer.h"

namespace cotune {

// "stage@rank:kill", ":stop", ":exit" or ":delay=MS", with ":N" behind it for the Nth time the
// stage comes (default 1). stage is a Name(Stage); "stage.end" is its end instead of its beginning.
struct Fault {
  enum class Action { kKill, kStop, kExit, kDelay };
  Stage stage = Stage::kRendezvous;
  bool is_at_end = false;
  int rank = 0;
  Action action = Action::kKill;
  int64_t delay_ns = 0;
  int32_t nth = 1;
};
// kUsage with what is wrong and the format; also for a rank that a job of `world_size` does not
// have.
Result<Fault> ParseFault(std::string_view text, int world_size = INT_MAX);

// Carries the fault out when its stage begins or ends on its rank.
std::unique_ptr<StageObserver> MakeFaultListener(const Fault& fault, int rank);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_TESTING_FAULT_INJECTION_H_
