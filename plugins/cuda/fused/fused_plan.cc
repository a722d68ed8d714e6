#include "plugins/cuda/fused/fused_plan.h"

#include <algorithm>
#include <cstddef>

#include "plugins/cuda/group/call_record.h"
#include "plugins/cuda/memory/kernel_launch.h"
#include "plugins/cuda/parts/part_shape.h"

namespace cotune::cuda {

using sdk::Result;

FusedPlan::Side::Side(const LeafSide& side)
    : inputs_(side.inputs),
      alignments_(VectorAlignments(side.part, side.stages)),
      given_(side.inputs.size()),
      stored_(side.part.outputs.size()),
      arguments_(cuda::ArgumentsOf(side.part)) {}

AnyPartArguments& FusedPlan::Side::ArgumentsOf(const void* const* inputs, void* const* outputs) {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    given_[i] = inputs_[i] < 0 ? nullptr : inputs[inputs_[i]];
  }
  if (outputs != nullptr) std::copy_n(outputs, stored_.size(), stored_.begin());
  SetOperands(alignments_, static_cast<int>(given_.size()), given_.data(), stored_.data(),
              arguments_);
  return arguments_;
}

FusedPlan::FusedPlan(Group& group, const LeafRegion& region, const Choice& choice,
                     gpu::CuFunction function)
    : group_(group),
      choice_(choice),
      count_(region.problem.count),
      call_(RecordOf(region.problem, choice.name)),
      function_(function),
      source_(region.source),
      sink_(region.sink) {}

KernelArguments FusedPlan::ArgumentsOf(const cotune_program_launch_t& launch) const {
  KernelArguments arguments = group_.arguments();
  arguments.count = count_;
  arguments.call = call_;
  // A length of time, because a captured launch runs again later.
  const int64_t now_ns = group_.host().now_ns(group_.host().context);
  arguments.timeout_ticks =
      TicksOf(static_cast<unsigned long long>(std::max<int64_t>(0, launch.deadline_ns - now_ns)));
  return arguments;
}

Result<void> FusedPlan::Launch(const cotune_program_launch_t& launch) {
  if (group_.HasFailed()) {
    if (const auto failure = group_.Health()) return tl::unexpected(*failure);
  }
  if (count_ == 0) return {};
  const gpu::CurrentContext current(group_.gpu().driver(), group_.gpu().context());
  group_.NoteCall(static_cast<gpu::CuStream>(launch.stream.handle));
  KernelArguments arguments = ArgumentsOf(launch);
  void* parameters[] = {&arguments, &source_.ArgumentsOf(launch.inputs, nullptr),
                        &sink_.ArgumentsOf(launch.inputs, launch.outputs)};
  return LaunchKernel(group_.gpu(), function_, parameters,
                      {.blocks = static_cast<unsigned int>(choice_.blocks),
                       .threads = static_cast<unsigned int>(choice_.spec.threads),
                       .uses_pdl = choice_.spec.uses_pdl,
                       .stream = launch.stream.handle});
}

}  // namespace cotune::cuda
