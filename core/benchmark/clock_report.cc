#include "core/benchmark/clock_report.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {

Result<CellClocks> ClockReport::Run(const PreparedCell& prepared) {
  if (!prepared.some_know_clocks) return CellClocks{};
  StepRecord<ClockReading> record;
  std::vector<std::string>& own_reasons = record.message.throttle_reasons;
  const std::optional<DeviceClocks> after = parts_.device.ReadClocks();
  if (after) record.message.sm_mhz = after->sm_mhz;
  for (const std::optional<DeviceClocks>& clocks : {prepared.clocks_before, after}) {
    if (!clocks) continue;
    own_reasons.insert(own_reasons.end(), clocks->throttle_reasons.begin(),
                       clocks->throttle_reasons.end());
  }
  COTUNE_TRY(const auto all, steps_.Exchange("clocks", record));
  if (std::optional<Error> failure = all.FirstFailure()) {
    return tl::make_unexpected(std::move(*failure));
  }
  CellClocks clocks;
  std::set<std::string> reasons;
  for (const auto& other : all.records) {
    const int32_t mhz = other.message.sm_mhz;
    const bool is_first = clocks.sm_clock_mhz == 0;
    if (mhz > 0) clocks.sm_clock_mhz = is_first ? mhz : std::min(clocks.sm_clock_mhz, mhz);
    reasons.insert(other.message.throttle_reasons.begin(), other.message.throttle_reasons.end());
  }
  clocks.throttle_reasons = fmt::format("{}", fmt::join(reasons, ","));
  return clocks;
}

}  // namespace cotune
