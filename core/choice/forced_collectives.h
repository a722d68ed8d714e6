// Tests whether collectives run the choices that the user forces.
#ifndef COTUNE_CORE_CHOICE_FORCED_COLLECTIVES_H_
#define COTUNE_CORE_CHOICE_FORCED_COLLECTIVES_H_

#include <optional>
#include <string>
#include <vector>

#include "core/backend/backend_groups.h"
#include "core/problem/forced_choices.h"
#include "core/problem/problem.h"
#include "core/problem/program.h"

namespace cotune {

// Returns the collectives of a program on plain buffers, each as the program calls it: some may be
// in place. A single collective is the anchor itself, on its own buffers. Pure.
std::vector<Problem> CollectivesOf(const Program& program, const Problem& anchor);

// Returns the reason for which the choice does not run the collective that the list is for; nothing
// if the list has the choice. Pure.
std::optional<std::string> WhyNotListed(const ChoiceList& list, const ChoiceId& id);

// Returns true if each collective of the program has a forced choice that runs it. Pure.
bool AreAllForced(const BackendGroups& groups, const ForcedChoices& forced, const Program& program,
                  const Problem& anchor);

}  // namespace cotune

#endif  // COTUNE_CORE_CHOICE_FORCED_COLLECTIVES_H_
