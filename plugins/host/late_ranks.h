// Tells the ranks that hold a group up from those that wait for them.
#ifndef COTUNE_PLUGINS_HOST_LATE_RANKS_H_
#define COTUNE_PLUGINS_HOST_LATE_RANKS_H_

#include <cstdint>
#include <span>

#include "plugins/host/control_block.h"

namespace cotune::host {

// One rank's words, read at one moment.
struct RankState {
  uint32_t progress = 0;
  uint32_t arrivals = 0;
  PublishedWait wait;
};

// Bit r is set when `wait` is not over because of rank r. At most kMaxRanks states.
uint64_t AwaitedRanks(std::span<const RankState> states, const PublishedWait& wait);

// Bit r is set when rank r is behind and itself waits for nobody, and rank `rank` waits for it,
// directly or through others. A rank whose wait is over but which does not go on (stopped, or busy
// elsewhere) counts. Empty when rank `rank` waits for nobody. Pure.
uint64_t LateRanks(std::span<const RankState> states, int rank);

}  // namespace cotune::host

#endif  // COTUNE_PLUGINS_HOST_LATE_RANKS_H_
