// The choices of one collective that race first, if not all of them do.
#ifndef COTUNE_CORE_CHOICE_LEADING_CHOICES_H_
#define COTUNE_CORE_CHOICE_LEADING_CHOICES_H_

#include <span>
#include <string>
#include <vector>

#include "core/backend/backend.h"
#include "core/problem/choice_id.h"

namespace cotune {

// Names the family of a choice of one collective. The choices of a family differ in the values of
// parameters that are numbers alone, for example in their chunk sizes. They run the same algorithm
// in the same region.
std::string FamilyOf(const ChoiceId& id);

// Marks the choice of each family that races first. It is the default choice itself, or the choice
// that has the parameters of the default choice; if there is none, it is that with the lowest
// estimate. All choices of a family are marked if some of them have no estimate. default_id is
// that of the collective by itself. Pure; equal on all ranks.
std::vector<bool> LeadingChoices(std::span<const Choice> choices, const ChoiceId& default_id);

}  // namespace cotune

#endif  // COTUNE_CORE_CHOICE_LEADING_CHOICES_H_
