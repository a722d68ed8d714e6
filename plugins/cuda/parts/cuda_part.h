// A part that is ready to launch on this rank's GPU.
#ifndef COTUNE_PLUGINS_CUDA_PARTS_CUDA_PART_H_
#define COTUNE_PLUGINS_CUDA_PARTS_CUDA_PART_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "plugins/api/cotune_program_v1.h"
#include "plugins/cuda/compile/kernel_library.h"
#include "plugins/cuda/memory/gpu.h"
#include "plugins/cuda/parts/part_arguments.h"
#include "plugins/cuda/parts/part_shape.h"
#include "plugins/cuda/parts/part_stages.h"
#include "plugins/sdk/failure.h"
#include "plugins/sdk/program.h"

namespace cotune::cuda {

// One call at a time. The GPU outlives it.
class CudaPart {
 public:
  // Compiles the part, or takes it from the library. COTUNE_UNSUPPORTED with the reason why it
  // cannot run here. deadline_ns: see KernelLibrary.
  static sdk::Result<std::unique_ptr<CudaPart>> Prepare(const Gpu& gpu, KernelLibrary& kernels,
                                                        const sdk::Program& program,
                                                        int64_t deadline_ns);
  // graphs: those that use the kernel; they outlive this. resident_blocks: that the GPU runs at the
  // same time.
  CudaPart(const Gpu& gpu, gpu::GraphUses& graphs, const sdk::Program& program,
           const PartStages& stages, const PartShape& shape, bool uses_pdl,
           gpu::CuFunction function, uint64_t resident_blocks);

  // Enqueues the call; [hot] and capturable.
  sdk::Result<void> Launch(const cotune_program_launch_t& launch);

 private:
  sdk::Result<void> LaunchKernel(const AnyPartArguments& arguments, void* stream,
                                 unsigned int blocks);

  const Gpu& gpu_;
  gpu::GraphUses& graphs_;
  const PartShape shape_;
  const bool uses_pdl_;
  const gpu::CuFunction function_;
  const int input_count_;
  const std::vector<uint32_t> alignments_;
  AnyPartArguments arguments_;
  std::vector<unsigned int> blocks_;  // of each launch
};

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_PARTS_CUDA_PART_H_
