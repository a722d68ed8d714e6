// Before a pass: whether all ranks were given the same tune.
#ifndef COTUNE_CORE_SCHEDULER_TUNE_COMPARISON_H_
#define COTUNE_CORE_SCHEDULER_TUNE_COMPARISON_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/base/status.h"
#include "core/choice/multi_template.h"
#include "core/ranks/rank_exchange.h"

namespace cotune {

// Collective, before anything is made of the nodes. The pre-sync compares the same fields, but it
// comes after everything was compiled, in collective preparations that ranks with different nodes
// or settings would not share, and a rank that is late for its window hides what differs. Here a
// late rank is waited for. kDisagreement on all ranks, with the first of `fields` (FieldsOfTune)
// that differs, or else the first node, counted from 1 after `nodes_before`; the error has the
// texts of both sides and the ranks that differ.
Status CompareTunes(RankExchange& exchange, const AgreedFields& fields,
                    std::span<const std::unique_ptr<MultiTemplate>> nodes, size_t nodes_before,
                    int64_t deadline_ns);

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_TUNE_COMPARISON_H_
