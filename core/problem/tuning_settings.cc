#include "core/problem/tuning_settings.h"

#include "fmt/format.h"
#include "fmt/ranges.h"

namespace cotune {

std::string_view Name(NumericsRule rule) { return rule == NumericsRule::kSame ? "same" : "any"; }

std::string FusionTypesText(uint8_t types, std::string_view separator) {
  std::string text;
  for (const auto& [name, type] : kFusionTypeNames) {
    if ((types & static_cast<uint8_t>(type)) == 0) continue;
    if (!text.empty()) text += separator;
    text += name;
  }
  return text.empty() ? "none" : text;
}

std::string FusionRules::DifferencesText() const {
  const FusionRules defaults;
  uint8_t taken = 0;
  for (const auto& [name, type] : kFusionTypeNames) {
    if (Takes(type)) taken |= static_cast<uint8_t>(type);
  }
  if (taken == 0) return "off";  // depth and threshold decide nothing then
  const bool is_depth_other = depth_max() != defaults.depth_max();
  const bool is_threshold_other = speedup_threshold != defaults.speedup_threshold;
  if (taken == kAllFusionTypes && !is_depth_other && !is_threshold_other) return "";
  std::string text = taken == kAllFusionTypes ? "all" : FusionTypesText(taken, "+");
  if (is_depth_other) text += fmt::format(" depth={}", depth_max());
  if (is_threshold_other) text += fmt::format(" threshold={}", speedup_threshold);
  return text;
}

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
      {"neighbour_pruning", text(neighbour_pruning)},
      {"numerics", std::string(Name(numerics))},
      {"collective_fusion_enabled", text(fusion.enabled)},
      {"custom_op_fusion_types", FusionTypesText(fusion.types)},
      {"benchmark_collective_epilogue_fusion", text(fusion.benchmarks_epilogues)},
      {"enable_recursive_fusion", text(fusion.is_recursive)},
      {"max_fusion_depth", text(fusion.max_depth)},
      {"fusion_speedup_threshold", text(fusion.speedup_threshold)},
      {"only_agreeable", text(fusion.only_agreeable)},
      {"force_choice", force.text()},
  };
}

}  // namespace cotune
