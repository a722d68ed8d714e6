// Failures as the ranks read them: who, at which call, what to do.
#ifndef COTUNE_SYNC_WIRE_FAILURE_TEXT_H_
#define COTUNE_SYNC_WIRE_FAILURE_TEXT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "sync/wire/wire_forward.h"

namespace cotune::sync {

wire::Failure FailureFromError(const Error& error);

// An unknown code reads as kInternal; ranks come out ascending.
Error ErrorFromFailure(const wire::Failure& failure);

// "rank 2", "ranks 0, 1, 3"; long lists are cut: "ranks 0, 1, ... and 60 more".
std::string RankList(std::span<const int> ranks);

// "step 'benchmark 7'", "pre-sync", "agreement", "pre-sync of subgroup 'tp'".
std::string CallText(wire::CallKind kind, std::string_view name, std::string_view channel);

// "2.0 s", "350 ms".
std::string DurationText(int64_t duration_ns);

// Printable, at most 120 characters, quoted.
std::string Quoted(std::string_view text);

// A kRankLost error with `ranks` sorted and each once.
Error RankLost(std::string what, std::string where, std::string cause, std::string next_step,
               std::vector<int> ranks);

}  // namespace cotune::sync

#endif  // COTUNE_SYNC_WIRE_FAILURE_TEXT_H_
