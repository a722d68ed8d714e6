#include "core/benchmark/cell_steps.h"

#include "fmt/format.h"

namespace cotune {

Result<ExchangedRecords> CellSteps::Exchange(std::string_view step, const StepRecord& record,
                                             int64_t start_delay_ns) {
  // A peer may be inside a launch until its deadline and a little longer, until it is aborted.
  const int64_t deadline_ns =
      parts_.clock.now_ns() + parts_.settings.collective_autotune_timeout_ns * 3 / 2;
  Result<ExchangedRecords> all =
      ExchangeRecords(parts_.exchange, fmt::format("{} {} {}", label_, step_count_++, step), record,
                      start_delay_ns, deadline_ns);
  if (all) coordinator_now_ns_ = all->coordinator_now_ns;
  return all;
}

}  // namespace cotune
