// Estimates the time that a region saves; for the order of regions.
#ifndef COTUNE_FUSION_ESTIMATE_H_
#define COTUNE_FUSION_ESTIMATE_H_

#include <cstdint>

#include "core/recipe/make_recipe.h"
#include "fusion/legality.h"

namespace cotune {

// The size of a program and its group.
struct ProgramSize {
  uint64_t rows = 1;
  int32_t world_size = 1;
};

// Picoseconds that a step with the region saves over the collective alone and the parts around it.
// It decides nothing but an order: forms are measured. Only values beside the region count, so that
// collectives with equal surroundings have equal orders. The number is a multiple of 1/2 and has no
// rounding below 2^52, so that all ranks compute the same one.
double SavedPicoseconds(const Legality& legality, const Region& region, const ProgramSize& size);

}  // namespace cotune

#endif  // COTUNE_FUSION_ESTIMATE_H_
