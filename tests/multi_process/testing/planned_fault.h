// A fault at a place of a program's call that an event gives: a step of the rank begins, ends, or
// reads the middle of its operand. It needs the plugin observed_host.
#ifndef COTUNE_TESTS_MULTI_PROCESS_TESTING_PLANNED_FAULT_H_
#define COTUNE_TESTS_MULTI_PROCESS_TESTING_PLANNED_FAULT_H_

#include <cstdint>

#include "tests/multi_process/testing/rank_processes.h"

namespace cotune {

enum class Moment { kBefore, kWithin, kAfter };

enum class Action {
  kKill,           // SIGKILL
  kStop,           // SIGSTOP
  kAwaitWord,      // reports "away" and goes on at the test's word
  kAwaitDeadline,  // goes on when the deadline of the step has passed
};

struct PlannedFault {
  int64_t step = 0;  // of those that this process runs, from 1
  Moment moment = Moment::kBefore;
  Action action = Action::kKill;
};

// Once a process; `link` outlives its steps.
void PlanFault(const PlannedFault& fault, TestLink& link);

// Steps that this process has launched.
int64_t LaunchedSteps();
// From now on each launch reports "launched STEP".
void ReportLaunches(TestLink& link);

}  // namespace cotune

#endif  // COTUNE_TESTS_MULTI_PROCESS_TESTING_PLANNED_FAULT_H_
