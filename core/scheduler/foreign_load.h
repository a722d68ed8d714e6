// The load that other programs put on the processors of the ranks while a cell is measured.
#ifndef COTUNE_CORE_SCHEDULER_FOREIGN_LOAD_H_
#define COTUNE_CORE_SCHEDULER_FOREIGN_LOAD_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "core/base/processor_times.h"
#include "core/ranks/step_messages.h"

namespace cotune {

// The largest share of their processors' time, 0 to 1, that the ranks did not use themselves.
// Ranks that may use the same processors are counted together. Pure. Nothing if it is not known: a
// rank has no times, the sets of two ranks overlap without being equal, or a set was observed for
// less than kObservedMinNs. Ranks on several hosts whose sets have the same names seem to use
// more of each, so that the share is too small then.
std::optional<double> ForeignShare(std::span<const ProcessorUse> ranks);

// Each processor is observed for so long: the steps of its idle time, 10 ms as a rule, are less
// than kForeignShareMax of this.
inline constexpr int64_t kObservedMinNs = 75'000'000;

// Returns the use of these processors between two readings. Pure. If the system has not counted the
// time between them, the use is not known, and all numbers are 0.
ProcessorUse UseBetween(const std::string& usable, const ProcessorTimes& before,
                        const ProcessorTimes& after);

// A cell counts as unsteady from this share on. On idle machines it is 0.00 to 0.05; a busy loop
// on each processor makes it 0.3 with two ranks for each, and 0.5 with one.
inline constexpr double kForeignShareMax = 0.15;

}  // namespace cotune

#endif  // COTUNE_CORE_SCHEDULER_FOREIGN_LOAD_H_
