// Which choices a program has: what its backends list, and for several collectives how they
// combine.
#ifndef COTUNE_CORE_CHOICE_CHOICE_LISTS_H_
#define COTUNE_CORE_CHOICE_CHOICE_LISTS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/backend/backend_groups.h"
#include "core/base/status.h"
#include "core/choice/choice_caller.h"
#include "core/choice/form_choices.h"
#include "core/problem/problem.h"
#include "core/problem/program.h"
#include "core/problem/tuning_settings.h"

namespace cotune {

// The choices and refusals of every backend that has a group; at most one choice is the default. A
// program's choices name one of these for each backend step of one of its forms, run with parts
// around them. For several different steps the list has all combinations if they are few, else
// those of a first race (FormChoices::First). Pure.
ChoiceList ListChoicesOf(const BackendGroups& groups, const Program& program,
                         const Problem& problem);

// A form other than the program as it is, or a region of the program as it is, for which backends
// were asked.
struct ConsideredForm {
  std::string key;   // as in ids: "via=bucket", "fuse=1.2"
  std::string name;  // the key; for a region with its collective: "fuse=1.2 of %3"
};

// A list of choices, and the combinations from which it has some or all; a program that is one
// collective has no combinations.
struct ListedChoices {
  ChoiceList list;
  FormChoices combinations;
  std::vector<ConsideredForm> considered{};  // in the order of the forms and their regions
};
// As ListChoicesOf.
ListedChoices ListWithCombinations(const BackendGroups& groups, const Program& program,
                                   const Problem& problem);

// What a list depends on beside backends and problem; equal on all ranks.
struct ListingRules {
  bool has_parts = false;  // some backend runs the local parts of programs
  NumericsRule numerics = NumericsRule::kAny;
  const RecipeSource* recipes = nullptr;  // nullptr: only single collectives have choices
  FusionRules fusion{};
};

// The same for some backends, without groups, in order of priority.
ChoiceList ListChoicesOf(const std::vector<const Backend*>& backends, const ListingRules& rules,
                         const Program& program, const Problem& problem);

// The choice with this id, also one that combines listed choices in a way that the list leaves out,
// or has a region for which the list has no room; nothing if no backend lists it. Pure.
std::optional<Choice> FindChoice(const BackendGroups& groups, const Program& program,
                                 const Problem& problem, const ChoiceId& id);

// Returns the choice of each collective, without keys of cotune, if ranks with other programs
// around the collectives can run these beside a rank that runs `choice`, which was listed or found.
// Returns nothing for another form of the program, and for a fused choice that does not fit any
// region, that all ranks make ready together, or that CUDA graphs cannot capture. Pure.
std::vector<ChoiceId> AgreeableSteps(const Program& program, const Choice& choice);

// Returns true if the program has the form of this id for the problem, and rules leave it in; true
// for a single collective. Pure.
bool HasForm(const BackendGroups& groups, const Program& program, const Problem& problem,
             const ChoiceId& id);

// The reason for which the choice with this id is refused; nothing if there is none. Pure.
std::optional<std::string> FindRefusal(const BackendGroups& groups, const Program& program,
                                       const Problem& problem, const ChoiceId& id);

// The caller of a choice that is listed or found; program and groups outlive it. kUnsupported: a
// backend of the choice is not in use, or the id names no recipe of the program, or has another
// number of steps than it.
Result<std::unique_ptr<ChoiceCaller>> MakeCaller(BackendGroups& groups, const Program& program,
                                                 const Problem& problem, const Choice& choice);

}  // namespace cotune

#endif  // COTUNE_CORE_CHOICE_CHOICE_LISTS_H_
