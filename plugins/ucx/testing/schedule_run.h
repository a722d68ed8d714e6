// Runs the schedules of all ranks in one thread, on plain arrays, in an order that a seed decides.
#ifndef COTUNE_PLUGINS_UCX_TESTING_SCHEDULE_RUN_H_
#define COTUNE_PLUGINS_UCX_TESTING_SCHEDULE_RUN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plugins/ucx/schedule.h"

namespace cotune::ucx {

// The buffers of one rank. In place the caller lets them be the same memory.
struct RankBuffers {
  const std::byte* send = nullptr;
  std::byte* receive = nullptr;
};

// Empty when all ranks have come to their end and no message is left; else what went wrong: ranks
// that wait for ever, or messages of different lengths for each other. A receive takes its data as
// late, and a send gives it as late, as the seed decides: not before both are posted.
std::string RunSchedules(const std::vector<Schedule>& schedules,
                         const std::vector<RankBuffers>& buffers, uint32_t seed);

}  // namespace cotune::ucx

#endif  // COTUNE_PLUGINS_UCX_TESTING_SCHEDULE_RUN_H_
