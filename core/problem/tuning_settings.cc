#include "core/problem/tuning_settings.h"

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {

std::string_view Name(NumericsRule rule) { return rule == NumericsRule::kSame ? "same" : "any"; }

std::vector<std::pair<std::string, std::string>> TuningSettings::AgreedValues() const {
  const auto text = [](const auto& value) { return fmt::format("{}", value); };
  return {
      {"collective_autotune_timeout_ns", text(collective_autotune_timeout_ns)},
      {"collective_benchmark_nruns", text(collective_benchmark_nruns)},
      {"collective_pre_sync_timeout_ns", text(collective_pre_sync_timeout_ns)},
      {"enable_collective_multitemplate", text(enable_collective_multitemplate)},
      {"collective_multi_kernel_hints_bytes",
       fmt::format("{}", fmt::join(collective_multi_kernel_hints_bytes, ","))},
      {"warm_timeout_ns", text(warm_timeout_ns)},
      {"budget_ns", text(budget_ns)},
      {"min_rounds", text(min_rounds)},
      {"noise_percent", text(noise_percent)},
      {"keep_unsteady", text(keep_unsteady)},
      {"sample_ns", text(sample_ns)},
      {"numerics", std::string(Name(numerics))},
      {"collective_fusion_enabled", text(fusion.enabled)},
  };
}

}  // namespace cotune
