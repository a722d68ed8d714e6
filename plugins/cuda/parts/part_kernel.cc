#include "plugins/cuda/parts/part_kernel.h"

#include <fmt/format.h>

namespace cotune::cuda {

KernelUnit UnitOf(const PartKernel& kernel) {
  KernelUnit unit;
  unit.source = SourceWith("part.cu", kernel.program);
  unit.options = {
      "--device-as-default-execution-space",
      // A product that is added is rounded before, so that results do not depend on how values are
      // combined into stages.
      "--fmad=false",
      fmt::format("-DCOTUNE_THREADS={}", kernel.shape.threads),
      fmt::format("-DCOTUNE_ROW_THREADS={}", kernel.shape.row_threads),
      fmt::format("-DCOTUNE_PDL={}", kernel.uses_pdl ? 1 : 0),
  };
  return unit;
}

}  // namespace cotune::cuda
