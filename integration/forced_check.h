// Tests whether some backend in use has the choices that a user forces.
#ifndef COTUNE_INTEGRATION_FORCED_CHECK_H_
#define COTUNE_INTEGRATION_FORCED_CHECK_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/base/status.h"
#include "core/problem/forced_choices.h"
#include "core/problem/program.h"

namespace cotune {

struct ForcedCheck {
  std::string origin;  // where the user gave the choices
  ProblemClass cls;    // memory and ranks of the calls count
  uint64_t topology_digest = 0;
  std::vector<std::string> backends;        // in use
  std::vector<std::string> known_backends;  // those, and others that cannot be used here
  std::vector<Refusal> refusals{};          // backends that are not in use, with the reasons
  std::function<ChoiceList(const Program& program, const Problem& problem)> list;
};

// kUsage: the backend of a choice is not in use, or no backend lists the choice for any call of its
// collective in groups of so many ranks or a few others, at any size. It asks for calls of the most
// usual kind first and stops at the first that has the choice.
Status CheckForcedChoices(const ForcedChoices& forced, const ForcedCheck& check);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_FORCED_CHECK_H_
