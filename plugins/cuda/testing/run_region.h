// One call of a region's kernel on all ranks of the CPU runner, with guarded operands.
#ifndef COTUNE_PLUGINS_CUDA_TESTING_RUN_REGION_H_
#define COTUNE_PLUGINS_CUDA_TESTING_RUN_REGION_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "plugins/cuda/cpu_runner/kernel_call.h"
#include "plugins/cuda/cpu_runner/ranks_on_cpu.h"
#include "plugins/cuda/fused/leaf_region.h"
#include "plugins/cuda/testing/region_cases.h"
#include "plugins/sdk/testing/part_builder.h"

namespace cotune::cuda::cpu {

// The arrays of each rank, in the order of the ranks.
using OfRanks = std::vector<std::vector<sdk::PartArray>>;

struct RunOptions {
  unsigned int blocks = 2;   // or clusters, for a kernel of rows
  unsigned int threads = 8;  // at least one for each peer; a kernel of rows has its own
  size_t shift = 0;          // operands begin so many elements after an aligned address
  int chunk_bytes = 512;     // for kernels that have chunks
  uint64_t seed = 1;
  int late_rank = -1;
};

// The region and the program outlive it. It belongs to the thread that calls RanksOnCpu::Run.
class FusedCall {
 public:
  FusedCall(const LeafRegion& region, const sdk::Program& program, OfRanks inputs,
            const RegionVariant& variant, const RunOptions& options);

  // The program of a rank calls it.
  void Launch(RanksOnCpu& ranks, int rank, PlainFunction kernel, const CallRecord& call);
  OfRanks Outputs() const;
  // Empty if nothing was written but outputs.
  std::string Damage() const;

 private:
  size_t ShiftOf(sdk::ValueDtype dtype) const;
  const GuardedBuffer& OutputOf(size_t rank, size_t output) const;

  const LeafRegion& region_;
  const sdk::Program& program_;
  const OfRanks inputs_;
  const RunOptions options_;
  const LaunchShape shape_;
  std::vector<std::vector<GuardedBuffer>> in_;
  std::vector<std::vector<GuardedBuffer>> out_;
};

// Why the launches on these ranks are no success; "" if they are. has_ended: the result of Run.
std::string FailureOf(const RanksOnCpu& ranks, bool has_ended);

}  // namespace cotune::cuda::cpu

#endif  // COTUNE_PLUGINS_CUDA_TESTING_RUN_REGION_H_
