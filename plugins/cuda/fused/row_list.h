// The choices of regions that reduce rows: how many threads and blocks a row has. Pure.
#ifndef COTUNE_PLUGINS_CUDA_FUSED_ROW_LIST_H_
#define COTUNE_PLUGINS_CUDA_FUSED_ROW_LIST_H_

#include <string_view>
#include <vector>

#include "plugins/cuda/choices/choice_list.h"
#include "plugins/cuda/fused/leaf_region.h"
#include "plugins/sdk/failure.h"

namespace cotune::cuda {

// All choices of a region that has rows, refused ones too, in a fixed order. None is a default.
std::vector<Choice> ListRowChoices(const LeafRegion& region, const ChoiceLimits& limits);

// The one of this name; fails as FindChoice does. It may be one that is not listed at this size.
sdk::Result<Choice> FindRowChoice(const LeafRegion& region, std::string_view name,
                                  const ChoiceLimits& limits);

// The ranks that run the operations on a row in the kernel of such a choice.
RowSide RowSideOf(const KernelSpec& spec);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_FUSED_ROW_LIST_H_
