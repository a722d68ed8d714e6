#include "core/benchmark/clock_report.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {

Result<CellClocks> ClockReport::Run(const PreparedCell& prepared) {
  if (!prepared.some_know_clocks) return CellClocks{};
  StepRecord record;
  const std::optional<DeviceClocks> after = parts_.device.ReadClocks();
  if (after) record.number = after->sm_mhz;
  for (const std::optional<DeviceClocks>& clocks : {prepared.clocks_before, after}) {
    if (!clocks) continue;
    record.items.insert(record.items.end(), clocks->throttle_reasons.begin(),
                        clocks->throttle_reasons.end());
  }
  const Result<ExchangedRecords> all = steps_.Exchange("clocks", record);
  if (!all) return tl::make_unexpected(all.error());
  if (std::optional<Error> failure = all->FirstFailure()) {
    return tl::make_unexpected(std::move(*failure));
  }
  CellClocks clocks;
  std::set<std::string> reasons;
  for (const StepRecord& other : all->records) {
    const auto mhz = static_cast<int32_t>(other.number);
    const bool is_first = clocks.sm_clock_mhz == 0;
    if (mhz > 0) clocks.sm_clock_mhz = is_first ? mhz : std::min(clocks.sm_clock_mhz, mhz);
    reasons.insert(other.items.begin(), other.items.end());
  }
  clocks.throttle_reasons = fmt::format("{}", fmt::join(reasons, ","));
  return clocks;
}

}  // namespace cotune
