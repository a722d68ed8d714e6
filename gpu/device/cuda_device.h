// A GPU as the pipeline measures on it.
#ifndef COTUNE_GPU_DEVICE_CUDA_DEVICE_H_
#define COTUNE_GPU_DEVICE_CUDA_DEVICE_H_

#include <cstdint>
#include <memory>
#include <optional>

#include "core/backend/device.h"
#include "core/base/clock.h"
#include "core/ranks/rank_exchange.h"

namespace cotune::gpu {

// How a rank finds its GPU.
struct RankPlace {
  int local_rank = 0;                // its number on its host
  std::optional<int32_t> ordinal{};  // when it is known already
  // Several ranks on one GPU, in turns, if all say so: only to test more ranks.
  bool may_share_gpus = false;
};

// The GPU of this rank (see OrdinalOfRank), with a stream of its own and the primary context made
// current on the calling thread, which is the one that measures. Collective over the exchange: the
// ranks learn how to line up on their GPUs. A sample is a CUDA graph of its calls, or the
// calls one by one where the plan cannot be captured, timed by events behind a barrier of all ranks
// on the device; spans begin at 0. The clock outlives it.
// kEnvironment: no driver, no such GPU, or one that another rank has too; kRankLost as the exchange
// says.
Result<std::unique_ptr<Device>> MakeCudaDevice(const RankPlace& place, RankExchange& exchange,
                                               const Clock& clock, int64_t deadline_ns);

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DEVICE_CUDA_DEVICE_H_
