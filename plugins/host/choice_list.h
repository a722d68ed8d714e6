// Which ways there are to run a problem: names, limits and a rough price of each.
#ifndef COTUNE_PLUGINS_HOST_CHOICE_LIST_H_
#define COTUNE_PLUGINS_HOST_CHOICE_LIST_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/host/fused_operations.h"
#include "plugins/host/schedule.h"
#include "plugins/host/sdk_names.h"

namespace cotune::host {

inline constexpr uint64_t kDefaultSlotBytes = uint64_t{2} << 20;
inline constexpr uint64_t kSmallestSlotBytes = uint64_t{64} << 10;
inline constexpr uint64_t kLargestSlotBytes = uint64_t{256} << 20;

struct Choice {
  std::string name;         // "two_shot?chunk=262144"
  std::string reason = "";  // not empty: refused, and why
  double cost_us = -1;
  bool is_default = false;
  std::string numerics = "";  // as in the ABI
  // It is of a region, and its schedule exchanges the same as that of the collective by itself.
  bool fits_any_region = false;
};

// All choices of the problem in a fixed order, refused ones included; exactly one of those that run
// is the default, if any runs. Sizes of chunks that come to the same are listed once. `needs`: of
// the operations around the collective, if it is that of a region. Pure.
std::vector<Choice> ListChoices(const Problem& problem, uint64_t slot_bytes,
                                const RegionNeeds& needs = {});

// Returns whether a choice of a region, which ListChoices has listed, is one that fits any region.
// Pure.
bool FitsAnyRegion(const Problem& problem, std::string_view choice_name, uint64_t slot_bytes,
                   const RegionNeeds& needs);

// The schedule of a choice for one rank. COTUNE_INVALID_ARGUMENT when the name is not a choice of
// this problem, COTUNE_UNSUPPORTED with the reason when it is refused. Pure.
Result<Schedule> ScheduleOf(const Problem& problem, std::string_view choice_name, int rank,
                            uint64_t slot_bytes, const RegionNeeds& needs = {});

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_CHOICE_LIST_H_
