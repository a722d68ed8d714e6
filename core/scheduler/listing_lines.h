// Lines for the log: the forms and regions of a program that a list of choices has or leaves out.
#ifndef COTUNE_CORE_SCHEDULER_LISTING_LINES_H_
#define COTUNE_CORE_SCHEDULER_LISTING_LINES_H_

#include <span>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/choice/choice_lists.h"
#include "core/problem/problem.h"
#include "core/problem/program.h"

namespace cotune {

struct ListingLine {
  std::string key;   // the form or region, as the list names it: "via=bucket", "fuse=1.2"
  std::string text;  // begins with the program and its rows
};

// One line for each form and region that a choice of the list runs, in the order of the list, then
// one for each refusal that concerns a form or a region, with its reason, and one for each other
// form and region that was considered, for which the list keeps no reason of its own. Empty for a
// single collective, which has neither. Pure.
std::vector<ListingLine> ListingLines(const Program& program, const Problem& problem,
                                      std::span<const ConsideredForm> considered,
                                      const ChoiceList& list);

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_LISTING_LINES_H_
