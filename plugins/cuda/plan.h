// One choice ready to launch on one group.
#ifndef COTUNE_PLUGINS_CUDA_PLAN_H_
#define COTUNE_PLUGINS_CUDA_PLAN_H_

#include <memory>
#include <vector>

#include "plugins/api/cotune_backend_v1.h"
#include "plugins/border/problem.h"
#include "plugins/cuda/choice_list.h"
#include "plugins/cuda/copy_list.h"
#include "plugins/cuda/group.h"
#include "plugins/cuda/side_stream.h"

namespace cotune::cuda {

// One thread at a time. The group outlives it.
class Plan {
 public:
  // function: of the choice's kernel; null for a copy. side: for copy engines, else null.
  Plan(Group& group, const border::Problem& problem, Choice choice, gpu::CuFunction function,
       std::unique_ptr<SideStream> side)
      : group_(group),
        problem_(problem),
        choice_(std::move(choice)),
        function_(function),
        side_(std::move(side)) {}

  // Enqueues the call; capturable. COTUNE_INVALID_ARGUMENT for buffers or a stream that do not fit,
  // buffers that are not registered among them where the choice needs that.
  border::Result<void> Launch(const cotune_launch_t& launch);

 private:
  border::Result<void> LaunchCopy(const cotune_launch_t& launch);
  // Between barriers, the copies that copy engines do.
  border::Result<void> LaunchCopies(const cotune_launch_t& launch);
  // The copies of one phase to peers, or those from this rank's own buffer to its own.
  border::Result<void> QueueCopies(const cotune_launch_t& launch, const KernelArguments& arguments,
                                   const std::vector<BufferCopy>& phase, bool to_peers,
                                   gpu::CuStream stream);
  border::Result<void> LaunchKernel(const KernelArguments& arguments, void* stream);
  border::Result<KernelArguments> ArgumentsOf(const cotune_launch_t& launch) const;
  // Looks up the buffers that a kernel reaches on its peers.
  border::Result<void> FindPeerBuffers(const cotune_launch_t& launch,
                                       KernelArguments& arguments) const;

  Group& group_;
  const border::Problem problem_;
  const Choice choice_;
  const gpu::CuFunction function_;
  std::unique_ptr<SideStream> side_;
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_PLAN_H_
