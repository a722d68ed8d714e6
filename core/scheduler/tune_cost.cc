#include "core/scheduler/tune_cost.h"

#include <algorithm>
#include <optional>

#include "core/base/memory_text.h"
#include "core/benchmark/cell_operands.h"
#include "fmt/format.h"

namespace cotune {
namespace {

// Rough cost of one choice of one cell, for the plan that is printed: checks, warm-up and rounds.
constexpr int64_t kSamplesPerChoice = 12;
constexpr int64_t kStepNs = 300'000;

int64_t EstimateChoiceNs(const Choice& choice, int32_t copies, const TuningSettings& settings) {
  const auto model_ns = static_cast<int64_t>(std::max(0.0, choice.cost_us) * 1000) * copies;
  return kSamplesPerChoice * (std::max(model_ns, settings.SampleNs()) + kStepNs);
}

}  // namespace

TuneCost EstimateCost(std::span<const TuneCell> cells, const BackendGroups& groups,
                      const Device& device, const TuningSettings& settings,
                      int64_t budget_left_ns) {
  TuneCost cost;
  TunePlan& plan = cost.plan;
  plan.group_bytes_per_rank = groups.GroupBytes();
  for (const TuneCell& cell : cells) {
    const ChoiceList& list = cell.place.node->ListChoices(groups, cell.place.hint_bytes);
    const Program& program = cell.place.node->program();
    const Problem problem = cell.place.problem();
    const int32_t copies = CellOperands::WantedCopies(program, problem, device.cache_bytes());
    uint64_t workspace_bytes = 0;
    int64_t race_ns = 0;
    for (const Choice& choice : list.choices) {
      race_ns += EstimateChoiceNs(choice, copies, settings);
      workspace_bytes += choice.workspace_bytes;
    }
    plan.estimated_ns += race_ns;
    // A second heat takes as long a choice as the first, whose plans are still there.
    const auto combinations =
        static_cast<int64_t>(cell.place.node->combinations_max(cell.place.hint_bytes));
    if (!list.choices.empty()) {
      const auto choices = static_cast<int64_t>(list.choices.size());
      plan.estimated_ns += race_ns * combinations / choices;
      workspace_bytes +=
          workspace_bytes * static_cast<uint64_t>(combinations) / static_cast<uint64_t>(choices);
    }
    plan.choices_to_measure += static_cast<int64_t>(list.choices.size());
    plan.refusals += static_cast<int64_t>(list.refusals.size());
    plan.workspace_bytes_per_rank = std::max(plan.workspace_bytes_per_rank, workspace_bytes);
    const bool is_on_host = device.kind() == MemoryKind::kHost;
    const uint64_t staging_bytes = is_on_host ? CellOperands::StagingBytes(program, problem) : 0;
    plan.buffer_bytes_per_rank =
        std::max(plan.buffer_bytes_per_rank,
                 CellOperands::AllocatedBytes(program, problem, copies) + staging_bytes);
    // There are fewer copies when memory is short.
    cost.least_bytes_per_rank = std::max(
        cost.least_bytes_per_rank, CellOperands::AllocatedBytes(program, problem) + staging_bytes);
  }
  cost.least_bytes_per_rank += plan.workspace_bytes_per_rank;
  if (settings.budget_ns > 0) {
    plan.estimated_ns = std::min(plan.estimated_ns, std::max<int64_t>(0, budget_left_ns));
  }
  return cost;
}

Status CheckMemory(const Device& device, int world_size, uint64_t bytes_per_rank) {
  const std::optional<uint64_t> available = device.AvailableBytes();
  const bool is_shared = device.kind() == MemoryKind::kHost;
  const auto sharers = static_cast<uint64_t>(is_shared ? world_size : 1);
  if (!available || bytes_per_rank <= *available / sharers) return {};
  return Fail(
      ErrorCode::kEnvironment,
      fmt::format("the largest size needs {} on {}, and {} are free{}", MemoryText(bytes_per_rank),
                  is_shared ? fmt::format("each of {} ranks", sharers) : "the GPU",
                  MemoryText(*available), sharers > 1 ? " for all of them" : ""),
      is_shared ? "host memory" : "GPU memory", "",
      is_shared ? "tune smaller sizes (--sizes), or start fewer ranks (--ranks)"
                : "tune smaller sizes (--sizes), or see `nvidia-smi`");
}

}  // namespace cotune
