// A GPU as the pipeline measures on it.
#ifndef COTUNE_GPU_DEVICE_CUDA_DEVICE_H_
#define COTUNE_GPU_DEVICE_CUDA_DEVICE_H_

#include <cstdint>
#include <memory>

#include "core/clock.h"
#include "core/device.h"
#include "core/rank_exchange.h"

namespace cotune::gpu {

// The GPU `ordinal` of this process for this rank, with a stream of its own and the primary context
// made current on the calling thread, which is the one that measures. Collective over the exchange:
// the ranks learn how to line up on their GPUs. A sample is a CUDA graph of its calls, timed by
// events behind a barrier of all ranks on the device; spans begin at 0. The clock outlives it.
// kEnvironment: no driver, no such GPU; kRankLost as the exchange says.
Result<std::unique_ptr<Device>> MakeCudaDevice(int32_t ordinal, RankExchange& exchange,
                                               const Clock& clock, int64_t deadline_ns);

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DEVICE_CUDA_DEVICE_H_
