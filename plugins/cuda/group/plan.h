// One choice ready to launch on one group.
#ifndef COTUNE_PLUGINS_CUDA_GROUP_PLAN_H_
#define COTUNE_PLUGINS_CUDA_GROUP_PLAN_H_

#include <array>
#include <cstddef>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/cuda/choices/choice_list.h"
#include "plugins/cuda/choices/copy_list.h"
#include "plugins/cuda/group/call_record.h"
#include "plugins/cuda/group/group.h"
#include "plugins/cuda/kernels/kernel_abi.h"
#include "plugins/sdk/problem.h"

namespace cotune::cuda {

// One thread at a time. The group outlives it.
class Plan {
 public:
  // function: of the choice's kernel; null for a copy.
  Plan(Group& group, const sdk::Problem& problem, Choice choice, gpu::CuFunction function);

  // Enqueues the call; [hot] and capturable. COTUNE_INVALID_ARGUMENT for buffers or a stream that
  // do not fit, buffers that are not registered among them where the choice needs that.
  sdk::Result<void> Launch(const cotune_launch_t& launch);

 private:
  sdk::Result<void> LaunchCopy(const cotune_launch_t& launch);
  // The copies that copy engines do, and the kernels around them.
  sdk::Result<void> LaunchCopies(const cotune_launch_t& launch, KernelArguments arguments);
  // The same where data is added up on the way.
  sdk::Result<void> LaunchSegments(const cotune_launch_t& launch, KernelArguments arguments);
  sdk::Result<void> QueueSegment(const cotune_launch_t& launch, const KernelArguments& arguments,
                                 size_t segment);
  sdk::Result<void> QueueCopies(const cotune_launch_t& launch, const KernelArguments& arguments,
                                const std::vector<BufferCopy>& copies, gpu::CuStream stream);
  sdk::Result<void> QueueCopy(const cotune_launch_t& launch, const KernelArguments& arguments,
                              const BufferCopy& copy, gpu::CuStream stream);
  sdk::Result<void> QueuePhase(const cotune_launch_t& launch, const KernelArguments& arguments,
                               size_t phase);
  // Lets the launch's stream wait for all copies before anything that is queued later.
  sdk::Result<void> JoinCopies(const cotune_launch_t& launch);
  // Launches the kernel that copies the data which stays on this GPU.
  sdk::Result<void> CopyHere(const cotune_launch_t& launch, const KernelArguments& arguments,
                             const BufferCopy& copy, void* stream);
  sdk::Result<void> LaunchKernel(const KernelArguments& arguments, void* stream, int blocks);
  sdk::Result<KernelArguments> ArgumentsOf(const cotune_launch_t& launch) const;
  // Looks up the buffers that a kernel reaches on its peers.
  sdk::Result<void> FindPeerBuffers(const cotune_launch_t& launch,
                                    KernelArguments& arguments) const;

  Group& group_;
  const sdk::Problem problem_;
  const Choice choice_;
  const CallRecord call_;
  const gpu::CuFunction function_;
  // The copies of this rank, which are those of every launch; empty for kernels alone.
  CopyList copies_;
  std::array<SegmentCopies, kCopySegments> segments_;
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_GROUP_PLAN_H_
