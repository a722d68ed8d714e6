// Writes a C++ file that holds the kernels of parts, so that they are compiled for the CPU.
//
// usage: write_part_variants SLICE SLICES OUTPUT PROGRAM_FILE...
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "plugins/cuda/parts/part_text.h"
#include "plugins/cuda/testing/part_cases.h"

namespace cotune::cuda {
namespace {

std::string SliceText(const std::vector<PartVariant>& variants, size_t slice, size_t slices) {
  std::string text =
      "#include \"plugins/cuda/cpu_runner/device_on_cpu.h\"\n"
      "#include \"plugins/cuda/cpu_runner/part_variants.h\"\n";
  std::string rows;
  for (size_t v = slice; v < variants.size(); v += slices) {
    const sdk::Program& program = variants[v].part.program;
    text += JoinedText({{PartText(program, *StagesOf(program)), variants[v].shape}}, v);
    rows += fmt::format(
        "    [](const void* arguments) {{\n"
        "      part_{0}::cotune_kernel_{0}(\n"
        "          *static_cast<const part_{0}::cotune::cuda::Arguments*>(arguments));\n    }},\n",
        v);
  }
  return text + fmt::format(
                    "namespace cotune::cuda::cpu {{\nstatic const PlainFunction kKernels[] = "
                    "{{\n{}}};\nconst std::span<const PlainFunction> kPartSlice{} = kKernels;\n"
                    "}}  // namespace cotune::cuda::cpu\n",
                    rows, slice);
}

}  // namespace
}  // namespace cotune::cuda

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  const auto variants = cotune::cuda::PartVariants({argv + 4, argv + argc});
  std::ofstream(argv[3]) << cotune::cuda::SliceText(variants, std::strtoul(argv[1], nullptr, 10),
                                                    std::strtoul(argv[2], nullptr, 10));
  return 0;
}
