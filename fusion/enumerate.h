// Finds the regions of the collectives and buckets of a form.
#ifndef COTUNE_FUSION_ENUMERATE_H_
#define COTUNE_FUSION_ENUMERATE_H_

#include <cstddef>
#include <vector>

#include "core/problem/choice_id.h"
#include "core/problem/program_graph.h"
#include "core/problem/tuning_settings.h"
#include "core/recipe/make_recipe.h"
#include "core/recipe/recipe_source.h"
#include "fusion/estimate.h"
#include "fusion/legality.h"

namespace cotune {

// A collective has at most so many regions in a form.
inline constexpr size_t kRegionsMax = 12;

// The regions of a collective, the best guess first. They grow breadth-first from the collective:
// over the readers of values that are in the region, and over the operands of operations before the
// collective. An operation joins when no operation between it and the collective is missing; ties
// go to the smaller index. Each legal prefix of the growth on either side, alone or with one of the
// other side, is a region. Rules only leave regions out. The size affects their order alone, and
// which are within kRegionsMax. Refusals name a region by the key of its ids ("fuse=-1.1.2"), each
// reason once. Each collective of a bucket grows as it does alone, and a region of the bucket takes
// equally many operations of all of them, or all that one has. Pure.
std::vector<Region> EnumerateRegions(const ProgramGraph& graph, size_t collective,
                                     const ProgramSize& size, const FusionRules& rules,
                                     std::vector<Refusal>& refusals);
// The same for a graph that is judged already, and for a bucket, which has several collectives.
std::vector<Region> EnumerateRegions(const Legality& legality,
                                     const std::vector<size_t>& collectives,
                                     const ProgramSize& size, const FusionRules& rules,
                                     std::vector<Refusal>& refusals);

// Gives every position of a form its regions that are legal by these numerics. Refusals of another
// form than the program as it is name it, too ("fuse=1&via=split").
void AddRegions(Form& form, const ProgramSize& size, const FusionRules& rules,
                NumericsRule numerics, std::vector<Refusal>& refusals);

}  // namespace cotune

#endif  // COTUNE_FUSION_ENUMERATE_H_
