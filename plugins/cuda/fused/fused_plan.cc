#include "plugins/cuda/fused/fused_plan.h"

#include <algorithm>

#include "plugins/cuda/group/call_record.h"
#include "plugins/cuda/memory/kernel_launch.h"

namespace cotune::cuda {

using sdk::Result;

FusedPlan::FusedPlan(Group& group, const LeafRegion& region, const Choice& choice,
                     gpu::CuFunction function)
    : group_(group),
      choice_(choice),
      count_(region.problem.count),
      call_(RecordOf(region.problem, choice.name)),
      function_(function),
      source_(SideArguments::OfSource(region)),
      sink_(SideArguments::OfSink(region)) {}

KernelArguments FusedPlan::ArgumentsOf(const cotune_program_launch_t& launch) const {
  KernelArguments arguments = group_.arguments();
  arguments.count = count_;
  arguments.call = call_;
  arguments.chunk_bytes = choice_.chunk_bytes;
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
  void* parameters[] = {&arguments, &source_.Of(launch.inputs, launch.outputs),
                        &sink_.Of(launch.inputs, launch.outputs)};
  return LaunchKernel(group_.gpu(), function_, parameters,
                      {.blocks = static_cast<unsigned int>(choice_.blocks),
                       .threads = static_cast<unsigned int>(choice_.spec.threads),
                       .cluster_blocks = static_cast<unsigned int>(choice_.spec.row_blocks),
                       .uses_pdl = choice_.spec.uses_pdl,
                       .stream = launch.stream.handle});
}

}  // namespace cotune::cuda
