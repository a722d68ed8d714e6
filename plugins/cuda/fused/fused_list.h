// The kernels that run regions, and the choices that this backend lists for one.
#ifndef COTUNE_PLUGINS_CUDA_FUSED_FUSED_LIST_H_
#define COTUNE_PLUGINS_CUDA_FUSED_FUSED_LIST_H_

#include <span>
#include <string_view>
#include <vector>

#include "plugins/cuda/choices/choice_list.h"
#include "plugins/cuda/choices/kernel_families.h"
#include "plugins/cuda/compile/kernel_spec.h"
#include "plugins/cuda/fused/leaf_region.h"
#include "plugins/sdk/failure.h"

namespace cotune::cuda {

// The families of regions without rows, in the order in which choices are listed. A new family is a
// row here and a file in kernels/.
std::span<const KernelFamily> FusedFamilies();

// All choices of a region, refused ones too; none is a default. A choice of one collective without
// rows fits any region, because a leaf is computed by one thread of one rank and travels as it does
// without operations.
// COTUNE_UNSUPPORTED: the group has one rank. Pure.
sdk::Result<std::vector<Choice>> ListFused(const LeafRegion& region, const ChoiceLimits& limits);

// The one of this name; fails as FindChoice does.
sdk::Result<Choice> FindFused(const LeafRegion& region, std::string_view name,
                              const ChoiceLimits& limits);

// Returns true if the name is that of a choice of regions that fits any region. Pure.
bool IsFusedName(std::string_view name);

// The input that the kernel of a choice for the region is compiled from.
KernelUnit UnitOf(const LeafRegion& region, const Choice& choice);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_FUSED_FUSED_LIST_H_
