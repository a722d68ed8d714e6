// Ranks as threads of one process, over the same machines as the socket exchange. For tests and for
// trying things out.
#ifndef COTUNE_SYNC_EXCHANGE_LOCAL_EXCHANGE_H_
#define COTUNE_SYNC_EXCHANGE_LOCAL_EXCHANGE_H_

#include <memory>
#include <vector>

#include "core/base/clock.h"
#include "core/ranks/rank_exchange.h"

namespace cotune::sync {

// [world_size] exchanges that have joined, one for each thread. `clock` must outlive them and must
// run: deadlines and windows are waited for in real time. Destroying one before its thread is done
// with it is the death of no rank: it leaves, and ranks that wait for it get an error that names
// it. Heartbeats are not used: threads do not die alone.
std::vector<std::unique_ptr<RankExchange>> MakeLocalExchanges(int world_size, const Clock& clock);

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_EXCHANGE_LOCAL_EXCHANGE_H_
