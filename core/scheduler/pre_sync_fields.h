// Everything about a tune that must be equal on all ranks.
#ifndef COTUNE_CORE_SCHEDULER_PRE_SYNC_FIELDS_H_
#define COTUNE_CORE_SCHEDULER_PRE_SYNC_FIELDS_H_

#include <cstddef>
#include <memory>
#include <span>

#include "core/choice/multi_template.h"
#include "core/problem/tuning_settings.h"
#include "core/ranks/rank_exchange.h"

namespace cotune {

// The settings, then `agreed`. An error names the first field that differs, and others may follow
// from a setting, as the table in force does from numerics. Compared before anything is made. Pure.
AgreedFields FieldsOfTune(const AgreedFields& agreed, const TuningSettings& settings);

// The same with the nodes, of which the tune has had `nodes_before` others; compared at the
// pre-sync, so that ranks which meet in its window are at the same nodes of the same tune. Pure.
AgreedFields PreSyncFields(const AgreedFields& agreed, const TuningSettings& settings,
                           std::span<const std::unique_ptr<MultiTemplate>> nodes,
                           size_t nodes_before = 0);

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_PRE_SYNC_FIELDS_H_
