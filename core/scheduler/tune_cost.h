// Estimates the time and memory of a tune before it begins.
#ifndef COTUNE_CORE_SCHEDULER_TUNE_COST_H_
#define COTUNE_CORE_SCHEDULER_TUNE_COST_H_

#include <cstdint>
#include <span>

#include "core/backend/backend_groups.h"
#include "core/backend/device.h"
#include "core/base/status.h"
#include "core/events/stage_observer.h"
#include "core/problem/tuning_settings.h"
#include "core/scheduler/tune_cell.h"

namespace cotune {

struct TuneCost {
  TunePlan plan{};  // of the cells to measure
  // Memory without which the largest cell cannot be measured; the plan may want more copies of its
  // operands.
  uint64_t least_bytes_per_rank = 0;
};
// budget_left_ns counts where the settings have a budget.
TuneCost EstimateCost(std::span<const TuneCell> cells, const BackendGroups& groups,
                      const Device& device, const TuningSettings& settings, int64_t budget_left_ns);

// kEnvironment when so much does not fit into what is free now; ranks share the memory of the host.
Status CheckMemory(const Device& device, int world_size, uint64_t bytes_per_rank);

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_TUNE_COST_H_
