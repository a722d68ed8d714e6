// A region of a program, a collective with local operations around it, across the plugin ABI.
#ifndef COTUNE_PLUGINS_LOADER_ADAPTED_REGION_H_
#define COTUNE_PLUGINS_LOADER_ADAPTED_REGION_H_

#include <cstdint>
#include <memory>

#include "core/backend/backend.h"
#include "plugins/loader/group_context.h"
#include "plugins/loader/program_listing.h"

namespace cotune {

// A region at one size, as a plugin is asked for it.
struct RegionRequest {
  ProgramGraph region;  // lowered: primitive operations only
  uint64_t rows = 0;    // R
  GroupShape group;
  uint64_t topology_digest = 0;
  bool rounds_values = false;  // as in GroupShape
};

// program: no single collective. problem: of its anchor.
RegionRequest RegionOf(const Program& program, const Problem& problem);
// The struct of the request; valid as long as the object.
AbiProgram ToAbi(const RegionRequest& request);

// Prepares the region by the plugin of a group and makes a plan of it, which shares the group's
// context with the plans of collectives. kUnsupported: the plugin does not run it, with the reason.
Result<std::unique_ptr<Plan>> PrepareRegion(const std::shared_ptr<GroupContext>& context,
                                            const Program& program, const Problem& problem,
                                            const Choice& choice, int64_t deadline_ns);

}  // namespace cotune

#endif  // COTUNE_PLUGINS_LOADER_ADAPTED_REGION_H_
