// The plan that the dispatcher keeps for a key; for its own sources.
#ifndef COTUNE_INTEGRATION_DISPATCHER_PLAN_H_
#define COTUNE_INTEGRATION_DISPATCHER_PLAN_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/choice/choice_caller.h"
#include "integration/dispatcher.h"

namespace cotune {

// Plans that are kept; the one used longest ago goes first. A model calls tens of different sizes.
inline constexpr size_t kPlansMax = 1024;

// Returns whether the group has failed with this error. A malformed call or a refusal leaves it as
// it was.
inline bool EndsTheGroup(ErrorCode code) {
  return code != ErrorCode::kUsage && code != ErrorCode::kUnsupported;
}

struct Dispatcher::CachedPlan {
  CachedPlan(PlanKey plan_key, Program plan_program)
      : key(plan_key), program(std::move(plan_program)) {}
  PlanKey key;
  Program program;
  std::unique_ptr<ChoiceCaller> caller;
  // On CUDA memory: calls of `caller` cannot be captured in a graph. Those that are captured run
  // `in_graphs`, which has the default for each collective whose choice cannot be captured.
  // nullptr: that cannot be captured either, or `graphs_failure` says why it is not ready.
  bool is_eager = false;
  std::unique_ptr<ChoiceCaller> in_graphs;
  std::optional<Error> graphs_failure;
  std::string table_choice_refused;  // as in CallExplanation
  bool is_next_best = false;         // likewise
  uint64_t next_size_bytes = 0;      // likewise
};

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_DISPATCHER_PLAN_H_
