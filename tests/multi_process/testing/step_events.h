// What the plugin observed_host tells the test that loads it: every step that a rank runs, whether
// a collective or a part of a program.
#ifndef COTUNE_TESTS_MULTI_PROCESS_TESTING_STEP_EVENTS_H_
#define COTUNE_TESTS_MULTI_PROCESS_TESTING_STEP_EVENTS_H_

#include <cstdint>

namespace cotune {

struct StepEvent {
  bool has_ended = false;  // false: the step is about to be launched
  // The rest is known at the launch only. The operand is what a collective sends, or the largest
  // input of a part.
  const void* operand = nullptr;
  uint64_t operand_bytes = 0;
  int64_t deadline_ns = 0;  // on CLOCK_MONOTONIC
};

// The name of the function that the test exports, and its type. It is called on the thread of the
// call.
inline constexpr char kStepHookName[] = "CotuneTestOnStep";
using StepHook = void (*)(const StepEvent&);

}  // namespace cotune

#endif  // COTUNE_TESTS_MULTI_PROCESS_TESTING_STEP_EVENTS_H_
