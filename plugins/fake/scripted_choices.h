// Entries of scripted choices in lists: whether they are refused, and their costs.
#ifndef COTUNE_PLUGINS_FAKE_SCRIPTED_CHOICES_H_
#define COTUNE_PLUGINS_FAKE_SCRIPTED_CHOICES_H_

#include <cstdint>
#include <string>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/fake/script.h"
#include "plugins/sdk/program.h"

namespace cotune::fake {

double CostUs(const ScriptedChoice& choice, uint64_t bytes);
// Returns why the choice is refused; "" if it can run the problem.
std::string WhyRefused(const ScriptedChoice& choice, const cotune_problem_t& problem);
// The same for a region.
std::string WhyRegionRefused(const ScriptedChoice& choice, const sdk::Program& region);
// reason: why it is refused; empty when it can run.
cotune_choice_t EntryOf(const ScriptedChoice& choice, const std::string& reason);
// The collective of a region as a problem of its own.
cotune_problem_t ToAbi(const sdk::Problem& problem);

}  // namespace cotune::fake

#endif  // COTUNE_PLUGINS_FAKE_SCRIPTED_CHOICES_H_
