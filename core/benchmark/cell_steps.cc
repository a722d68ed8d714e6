#include "core/benchmark/cell_steps.h"

#include "fmt/format.h"

namespace cotune {

std::string CellSteps::NextName(std::string_view step) {
  return fmt::format("{} {} {}", label_, step_count_++, step);
}

int64_t CellSteps::DeadlineNs() const {
  // A peer may be inside a launch until its deadline and a little longer, until it is aborted.
  return parts_.clock.now_ns() + parts_.settings.collective_autotune_timeout_ns * 3 / 2;
}

}  // namespace cotune
