#include "plugins/cuda/parts/part_kernel.h"

#include <fmt/format.h>

#include <string_view>

namespace cotune::cuda {

KernelUnit UnitOf(const PartKernel& kernel) {
  constexpr std::string_view kGenerated = "program.cuh";
  KernelUnit unit;
  unit.source = SourceOf("part.cu");
  for (auto& [name, text] : unit.source.headers) {
    if (name == kGenerated) text = kernel.program;
  }
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
