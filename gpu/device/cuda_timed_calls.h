// Times the calls of a plan on a GPU: by a captured graph, or launched one by one when the plan
// cannot be captured.
#ifndef COTUNE_GPU_DEVICE_CUDA_TIMED_CALLS_H_
#define COTUNE_GPU_DEVICE_CUDA_TIMED_CALLS_H_

#include <cstdint>
#include <memory>
#include <span>

#include "core/backend/backend.h"
#include "core/backend/device.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "gpu/device/cuda_stream.h"
#include "gpu/device/rank_alignment.h"
#include "gpu/driver/cuda_driver.h"

namespace cotune::gpu {

// The stream that the calls run on, and the barrier of the ranks in front of them. All of it
// outlives the timed calls.
struct TimingPlace {
  const CudaDriver& driver;
  CudaStream& stream;
  RankAlignment* alignment;  // nullptr with one rank
  const Clock& clock;
};

// `repetitions` calls of the plan, which take their arguments in turns and lie between two events.
// The context of the stream is current. One thread.
Result<std::unique_ptr<TimedCalls>> MakeTimedCalls(const TimingPlace& place, Plan& plan,
                                                   std::span<const LaunchArguments> arguments,
                                                   int32_t repetitions);

}  // namespace cotune::gpu

#endif  // COTUNE_GPU_DEVICE_CUDA_TIMED_CALLS_H_
