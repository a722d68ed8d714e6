#include "core/problem/tuning_settings.h"

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {

std::string TuningSettings::AgreedText() const {
  return fmt::format(
      "collective_autotune_timeout_ns={}\n"
      "collective_benchmark_nruns={}\n"
      "collective_pre_sync_timeout_ns={}\n"
      "enable_collective_multitemplate={}\n"
      "collective_multi_kernel_hints_bytes={}\n"
      "warm_timeout_ns={}\n"
      "budget_ns={}\n"
      "min_rounds={}\n"
      "noise_percent={}\n"
      "sample_ns={}\n",
      collective_autotune_timeout_ns, collective_benchmark_nruns, collective_pre_sync_timeout_ns,
      enable_collective_multitemplate, fmt::join(collective_multi_kernel_hints_bytes, ","),
      warm_timeout_ns, budget_ns, min_rounds, noise_percent, sample_ns);
}

}  // namespace cotune
