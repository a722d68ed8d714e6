// A plan of which each call ends at once, for tests.
#ifndef COTUNE_CORE_TESTING_EMPTY_PLAN_H_
#define COTUNE_CORE_TESTING_EMPTY_PLAN_H_

#include <cstdint>

#include "core/backend/backend.h"

namespace cotune {

class EmptyPlan final : public Plan {
 public:
  Status Launch(const LaunchArguments&) override { return {}; }
  Result<bool> Progress(int64_t) override { return true; }
};

}  // namespace cotune

#endif  // COTUNE_CORE_TESTING_EMPTY_PLAN_H_
