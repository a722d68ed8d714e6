// Refusals in few lines: choices that one reason refuses are listed together.
#ifndef COTUNE_CLI_OUTPUT_REFUSAL_GROUPS_H_
#define COTUNE_CLI_OUTPUT_REFUSAL_GROUPS_H_

#include <string>
#include <vector>

#include "core/problem/choice_id.h"

namespace cotune::cli {

struct RefusalGroup {
  std::string choices;  // "host/a, host/b, host/c and 37 more (40 in all)"
  std::string reason;
};

// The groups in the order of their first refusal. Results in JSON list every refusal instead.
std::vector<RefusalGroup> GroupByReason(const std::vector<Refusal>& refusals);

}  // namespace cotune::cli

#endif  // COTUNE_CLI_OUTPUT_REFUSAL_GROUPS_H_
