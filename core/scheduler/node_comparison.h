// Before a pass: whether all ranks were given the same nodes.
#ifndef COTUNE_CORE_SCHEDULER_NODE_COMPARISON_H_
#define COTUNE_CORE_SCHEDULER_NODE_COMPARISON_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/base/status.h"
#include "core/choice/multi_template.h"
#include "core/ranks/rank_exchange.h"

namespace cotune {

// Collective, before anything is made of the nodes: the fields of the pre-sync hold them too, but
// ranks with different nodes would by then have waited for each other in collective preparations.
// kDisagreement on all ranks, with the first node that differs, counted from 1 behind
// `nodes_before`, and the ranks where it does.
Status CompareNodes(RankExchange& exchange, std::span<const std::unique_ptr<MultiTemplate>> nodes,
                    size_t nodes_before, int64_t deadline_ns);

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_NODE_COMPARISON_H_
