// The choices of a table for a call of a size that was not measured.
//
// A backend lists the parameters that are worth trying at a size, such as the number of blocks that
// fits it. What wins at a measured size often runs at the sizes around it without being listed
// there. What is said in the list, above all whether the choice can be captured in a CUDA graph, is
// then taken from the list of the measured size.
#ifndef COTUNE_INTEGRATION_NEARBY_CHOICE_H_
#define COTUNE_INTEGRATION_NEARBY_CHOICE_H_

#include <optional>
#include <string>

#include "core/backend/backend_groups.h"
#include "core/problem/program.h"
#include "core/selection/dispatch_table.h"

namespace cotune {

// A choice of a table for a problem.
struct NearbyChoice {
  Choice choice;
  // Else it is listed for the measured size only, and its backend may refuse the problem when the
  // choice is made ready: with kUnsupported, and on all ranks alike.
  bool is_listed_here = true;
};

// Returns the problem at the measured size whose winner the table has for `problem`. Nothing: the
// table has none, or does not know its measured sizes. Pure.
std::optional<Problem> AtMeasuredSize(const DispatchTable& table, const Program& program,
                                      const Problem& problem);

// Returns the choice as it is listed for the problem, or else for the problem at the measured size.
// Nothing: neither lists it, or a backend lists it as refused for the problem. Pure.
std::optional<NearbyChoice> FindNearby(const BackendGroups& groups, const Program& program,
                                       const Problem& problem,
                                       const std::optional<Problem>& measured, const ChoiceId& id);

// Returns why a backend lists the choice as refused; nothing where none does. Pure.
std::optional<std::string> ListedRefusal(const BackendGroups& groups, const Program& program,
                                         const Problem& problem, const ChoiceId& id);

}  // namespace cotune

#endif  // COTUNE_INTEGRATION_NEARBY_CHOICE_H_
