#include "plugins/host/fused_operations.h"

#include <algorithm>
#include <utility>

#include "plugins/host/element_planner.h"

namespace cotune::host {
namespace {

Result<bool> IsFlat(const RegionSide& side) {
  COTUNE_TRY(const auto plan, PlanElements(sdk::WithoutCopies(side.program)));
  return plan.IsFlat();
}

}  // namespace

Result<RegionNeeds> NeedsOf(const RegionCut& cut) {
  RegionNeeds needs{.has_before = cut.before.has_value(),
                    .has_after = cut.after.has_value(),
                    .overwrites_operand = cut.overwrites_operand};
  for (const std::optional<RegionSide>* side : {&cut.before, &cut.after}) {
    if (!*side) continue;
    COTUNE_TRY(const bool is_flat, IsFlat(**side));
    if (!is_flat) needs.unit_elements = cut.columns;
  }
  return needs;
}

Result<std::unique_ptr<FusedOperations>> FusedOperations::Prepare(RegionCut cut) {
  std::unique_ptr<FusedOperations> made(new FusedOperations(std::move(cut)));
  const auto prepare = [](const std::optional<RegionSide>& side,
                          std::optional<Side>& to) -> Result<void> {
    if (!side) return {};
    COTUNE_TRY(auto program, ElementProgram::Prepare(side->program));
    const auto value =
        std::find(side->inputs.begin(), side->inputs.end(), RegionSide::kCollectiveValue);
    to = Side{.program = std::move(program),
              .inputs = std::vector<const void*>(side->inputs.size()),
              .outputs = std::vector<void*>(side->program.outputs.size()),
              .value_input = static_cast<size_t>(value - side->inputs.begin())};
    return {};
  };
  COTUNE_RETURN_IF_ERROR(prepare(made->cut_.before, made->before_));
  COTUNE_RETURN_IF_ERROR(prepare(made->cut_.after, made->after_));
  return made;
}

void FusedOperations::Begin(const void* const* inputs, void* const* outputs) {
  const auto set_inputs = [inputs](const RegionSide& cut, Side& side) {
    for (size_t i = 0; i < side.inputs.size(); ++i) {
      if (cut.inputs[i] != RegionSide::kCollectiveValue) side.inputs[i] = inputs[cut.inputs[i]];
    }
    side.program->Begin(side.inputs.data());
  };
  if (before_) {
    set_inputs(*cut_.before, *before_);
  } else {
    operand_ = inputs[cut_.operand];
  }
  if (after_) {
    set_inputs(*cut_.after, *after_);
    std::copy_n(outputs, after_->outputs.size(), after_->outputs.begin());
  } else {
    value_ = outputs[0];
  }
}

void FusedOperations::Run(Side& side, uint64_t first, uint64_t count) const {
  if (side.program->is_flat()) {
    side.program->RunElements(side.inputs.data(), side.outputs.data(), first, count);
  } else {
    side.program->RunRows(side.inputs.data(), side.outputs.data(), first / cut_.columns,
                          count / cut_.columns);
  }
}

void FusedOperations::ComputeOperand(uint64_t first, uint64_t count, void* to) {
  before_->outputs[0] = AddressOfWhole(to, first, ElementBytes(cut_.problem.type));
  Run(*before_, first, count);
}

void FusedOperations::UseValue(uint64_t first, uint64_t count, const void* piece) {
  after_->inputs[after_->value_input] =
      AddressOfWhole(piece, first, ElementBytes(cut_.problem.type));
  Run(*after_, first, count);
}

void FusedOperations::End() {
  if (after_) after_->program->End(after_->inputs.data(), after_->outputs.data());
}

}  // namespace cotune::host
