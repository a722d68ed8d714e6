// Everything about a tune that must be equal on all ranks, as they compare it at the pre-sync.
#ifndef COTUNE_CORE_SCHEDULER_PRE_SYNC_FIELDS_H_
#define COTUNE_CORE_SCHEDULER_PRE_SYNC_FIELDS_H_

#include <cstddef>
#include <memory>
#include <span>

#include "core/choice/multi_template.h"
#include "core/problem/tuning_settings.h"
#include "core/ranks/rank_exchange.h"

namespace cotune {

// Adds settings and nodes to `agreed`; in front of these nodes the tune has had `nodes_before`.
// Pure.
AgreedFields PreSyncFields(AgreedFields agreed, const TuningSettings& settings,
                           std::span<const std::unique_ptr<MultiTemplate>> nodes,
                           size_t nodes_before = 0);

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_PRE_SYNC_FIELDS_H_
