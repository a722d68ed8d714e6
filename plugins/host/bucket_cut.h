// Cuts a bucket, a region of several collectives that do not depend on each other, into the regions
// of its collectives, and gives each its place in one packed value.
#ifndef COTUNE_PLUGINS_HOST_BUCKET_CUT_H_
#define COTUNE_PLUGINS_HOST_BUCKET_CUT_H_

#include <cstddef>
#include <cstdint>

#include "plugins/host/region_cut.h"
#include "plugins/host/sdk_names.h"
#include "plugins/sdk/program.h"

namespace cotune::host {

// Each collective begins at a multiple of it in the packed value, so that vectors and cache lines
// are not shared.
inline constexpr size_t kMemberAlignment = 256;

// COTUNE_UNSUPPORTED with a reason for people: collectives other than all_reduces of one dtype and
// reduction, operations that do not belong to exactly one of them, an output that overwrites what
// another collective reads, and all that CutRegion refuses of a region of one of them. The region
// has two collectives or more. Pure.
Result<RegionCut> CutBucket(const sdk::Program& region);

// A number that differs if the places in the packed value do. It fits the low half of a program's
// digest.
uint32_t DigestOfPlaces(const RegionCut& bucket);

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_BUCKET_CUT_H_
