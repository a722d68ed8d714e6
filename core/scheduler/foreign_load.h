// The load that other programs put on the processors of the ranks while a cell is measured.
#ifndef COTUNE_CORE_SCHEDULER_FOREIGN_LOAD_H_
#define COTUNE_CORE_SCHEDULER_FOREIGN_LOAD_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/ranks/step_messages.h"

namespace cotune {

// The largest share of their processors' time, 0 to 1, that the ranks did not use themselves.
// Ranks that may use the same processors are counted together. Pure. Nothing if it is not known: a
// rank has no times, the sets of two ranks overlap without being equal, or a set was observed for
// too short a time (IsObserved). Ranks on several hosts whose sets have the same names seem to use
// more of each, so that the share is too small then.
std::optional<double> ForeignShare(std::span<const ProcessorUse> ranks);

// Returns true if these processors were observed for so long that the steps of their times, 10 ms
// as a rule, hardly matter: 200 ms of all of them together, and 50 ms of each.
bool IsObserved(const std::string& usable, int64_t capacity_ns);

// A cell counts as unsteady from this share on. On idle machines it is 0.00 to 0.05; a busy loop
// on each processor makes it 0.3 with two ranks for each, and 0.5 with one.
inline constexpr double kForeignShareMax = 0.15;

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_FOREIGN_LOAD_H_
