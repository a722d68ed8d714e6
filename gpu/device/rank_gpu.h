// Which GPU a rank works on.
#ifndef COTUNE_GPU_DEVICE_RANK_GPU_H_
#define COTUNE_GPU_DEVICE_RANK_GPU_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/base/status.h"

namespace cotune::gpu {

// The ordinal, among the GPUs that this process sees, of the one for this rank: that of the context
// which is current on the calling thread, as for NCCL; else the one with the number of the rank on
// its host; else the only one, where the launcher shows every process its own (srun
// --gpus-per-task=1). may_share: where there are fewer, ranks go round over them. kEnvironment:
// there is none. Pure.
Result<int32_t> OrdinalOfRank(int local_rank, int visible_gpus, std::optional<int32_t> current,
                              bool may_share = false);

// uuids: of every rank's GPU, by rank; "" is not known, and like no other. job_ranks: what the text
// calls these ranks. kEnvironment when two have the same. Pure.
Status CheckOneRankEach(std::span<const std::string> uuids, std::span<const int> job_ranks);

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DEVICE_RANK_GPU_H_
