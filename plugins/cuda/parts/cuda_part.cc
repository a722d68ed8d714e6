#include "plugins/cuda/parts/cuda_part.h"

#include <algorithm>

#include "plugins/cuda/memory/kernel_launch.h"
#include "plugins/cuda/parts/part_kernel.h"
#include "plugins/cuda/parts/part_text.h"

namespace cotune::cuda {
namespace {

using sdk::Result;

// How many blocks of a kernel the GPU runs at the same time; at least 1.
Result<uint64_t> ResidentBlocks(const Gpu& gpu, gpu::CuFunction function, int threads) {
  const gpu::CurrentContext current(gpu.driver(), gpu.context());
  gpu::CuDevice device = 0;
  int multiprocessors = 0;
  int blocks = 0;
  auto done = gpu.Check(gpu.driver()->DeviceGet(&device, gpu.ordinal()), "cuDeviceGet");
  if (done) {
    done = gpu.Check(
        gpu.driver()->DeviceGetAttribute(&multiprocessors, gpu::kCuMultiprocessorCount, device),
        "cuDeviceGetAttribute");
  }
  if (done) {
    done = gpu.Check(gpu.driver()->OccupancyBlocks(&blocks, function, threads, 0),
                     "cuOccupancyMaxActiveBlocksPerMultiprocessor");
  }
  COTUNE_RETURN_IF_ERROR(done);
  return static_cast<uint64_t>(std::max(1, multiprocessors * blocks));
}

}  // namespace

Result<std::unique_ptr<CudaPart>> CudaPart::Prepare(const Gpu& gpu, KernelLibrary& kernels,
                                                    const sdk::Program& program,
                                                    int64_t deadline_ns) {
  COTUNE_TRY(const auto stages, StagesOf(program));
  const PartKernel kernel = {PartText(program, stages), ShapeOf(program, stages),
                             HasProgrammaticLaunch(gpu.capability())};
  COTUNE_TRY(const auto function, kernels.Get(UnitOf(kernel), deadline_ns));
  COTUNE_TRY(const auto resident, ResidentBlocks(gpu, function, kernel.shape.threads));
  return std::make_unique<CudaPart>(gpu, kernels.graphs(), program, stages, kernel.shape,
                                    kernel.uses_pdl, function, resident);
}

CudaPart::CudaPart(const Gpu& gpu, gpu::GraphUses& graphs, const sdk::Program& program,
                   const PartStages& stages, const PartShape& shape, bool uses_pdl,
                   gpu::CuFunction function, uint64_t resident_blocks)
    : gpu_(gpu),
      graphs_(graphs),
      shape_(shape),
      uses_pdl_(uses_pdl),
      function_(function),
      input_count_(program.input_count),
      alignments_(VectorAlignments(program, stages)),
      arguments_(ArgumentsOf(program)) {
  std::vector<unsigned int> ends;
  for (int launch = 0; launch < stages.launches; ++launch) {
    const auto of_launch =
        StageEndsOf(program, stages, shape, launch, BlocksMax(stages, launch, resident_blocks));
    ends.insert(ends.end(), of_launch.begin(), of_launch.end());
    blocks_.push_back(of_launch.empty() ? 0 : of_launch.back());
  }
  if (SharesOutBlocks(stages)) SetStageEnds(ends, alignments_.size(), arguments_);
}

Result<void> CudaPart::Launch(const cotune_program_launch_t& launch) {
  const gpu::CurrentContext current(gpu_.driver(), gpu_.context());
  graphs_.Add(gpu_.driver(), static_cast<gpu::CuStream>(launch.stream.handle));
  SetOperands(alignments_, input_count_, launch.inputs, launch.outputs, arguments_);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i] == 0) continue;
    arguments_.launch = static_cast<unsigned int>(i);
    auto done = LaunchKernel(arguments_, launch.stream.handle, blocks_[i]);
    if (!done) return done;
  }
  return {};
}

Result<void> CudaPart::LaunchKernel(const AnyPartArguments& arguments, void* stream,
                                    unsigned int blocks) {
  void* parameters[] = {const_cast<AnyPartArguments*>(&arguments)};
  return cuda::LaunchKernel(gpu_, function_, parameters,
                            {.blocks = blocks,
                             .threads = static_cast<unsigned int>(shape_.threads),
                             .uses_pdl = uses_pdl_,
                             .stream = stream});
}

}  // namespace cotune::cuda
