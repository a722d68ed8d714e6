// The choices of a problem: names, refusals, defaults, prices; and the schedule behind a name.
#ifndef COTUNE_PLUGINS_UCX_CHOICE_LIST_H_
#define COTUNE_PLUGINS_UCX_CHOICE_LIST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/ucx/schedule.h"

namespace cotune::ucx {

struct Choice {
  std::string name;
  std::string reason;  // not empty: refused
  double cost_us = 0;
  bool is_default = false;
  uint64_t workspace_bytes = 0;
  std::string numerics{};
};

// Depends on the problem alone. At least one choice can run, and one of those is the default.
std::vector<Choice> ListChoices(const Problem& problem);

// COTUNE_UNSUPPORTED for a choice that is refused, COTUNE_INVALID_ARGUMENT for a name that is none.
Result<Schedule> ScheduleOf(const Problem& problem, std::string_view choice_name, int rank);

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_CHOICE_LIST_H_
