// The links by which the GPUs of a group's ranks reach each other.
#ifndef COTUNE_GPU_DEVICE_GPU_LINKS_H_
#define COTUNE_GPU_DEVICE_GPU_LINKS_H_

#include <cstdint>
#include <string>

#include "core/base/status.h"
#include "core/ranks/rank_exchange.h"

namespace cotune::gpu {

// Collective: all ranks of `exchange` call it, each with the ordinal of its own GPU. The driver
// ranks the link to each GPU that this process sees (CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 0 is
// the fastest); NVML knows of the others on this host whether NVLink joins them. The text is that
// of ConnectionsText, and equal on all ranks: "performance rank 0 between all ranks". "": one rank,
// or nothing is known. Fails as the exchange fails.
Result<std::string> LinksOfRanks(int32_t ordinal, RankExchange& exchange, int64_t deadline_ns);

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DEVICE_GPU_LINKS_H_
