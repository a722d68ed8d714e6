// Lists of choices whose results have the same bits.
#ifndef COTUNE_CORE_CHOICE_NUMERICS_H_
#define COTUNE_CORE_CHOICE_NUMERICS_H_

#include <span>
#include <string>

#include "core/backend/backend.h"

namespace cotune {

// Keeps the choices of one collective that are exact, and those of one other numerics class; the
// rest become refusals that say so. The class is rank_order_f32 where some choice has it, because
// that is the only order that backends share, and the result then depends on no backend, size or
// parameter. Elsewhere it is the class of the default choice, which runs when nothing is tuned. A
// list that loses its default gets another one: the cheapest choice by the estimates of the first
// backend that is left. Pure.
void KeepOneNumerics(ChoiceList& list);

// The same for a region: keeps its choices that are exact, and those of the class that the choices
// of its collective by itself have, which are `bare`. The rest become refusals. Pure.
void KeepNumericsOf(std::span<const Choice> bare, ChoiceList& list);

// The class of a program whose collectives have these: exact ones do not count, and equal ones
// count once. "" where one is unknown.
std::string JoinNumerics(std::span<const std::string> classes);

}  // namespace cotune

#endif  // COTUNE_CORE_CHOICE_NUMERICS_H_
