// Writes a C++ file that holds fused kernels, so that they are compiled for the CPU.
//
// usage: write_fused_variants SLICE SLICES OUTPUT
#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "plugins/cuda/compile/kernel_spec.h"
#include "plugins/cuda/fused/leaf_region.h"
#include "plugins/cuda/testing/inlined_text.h"
#include "plugins/cuda/testing/region_cases.h"

namespace cotune::cuda {
namespace {

// The options of the compiler as macros, and the text of the kernel in a namespace.
std::string TextOf(const RegionVariant& variant, const RegionCase& region, size_t number) {
  const LeafRegion leaves = LeafRegionAt(region, 1, variant.world_size);
  const KernelSpec spec = SpecOf(variant, leaves);
  std::string defines;
  std::string undefines;
  for (const std::string& option : NvrtcOptions(spec)) {
    if (!option.starts_with("-D")) continue;
    const size_t equals = option.find('=');
    const std::string name = option.substr(2, equals == std::string::npos ? equals : equals - 2);
    const std::string value = equals == std::string::npos ? "1" : option.substr(equals + 1);
    defines += fmt::format("#define {} {}\n", name, value);
    undefines += fmt::format("#undef {}\n", name);
  }
  return fmt::format(
      "{0}#define cotune_kernel cotune_kernel_{1}\nnamespace fused_{1} {{\n"
      "namespace cotune::cuda {{ using namespace ::cotune::cuda; }}\n{2}"
      "}}  // namespace fused_{1}\n{3}#undef cotune_kernel\n",
      defines, number, InlinedText(SourceWith(spec.source, LeafRegionText(leaves))), undefines);
}

std::string SliceText(size_t slice, size_t slices) {
  std::string text =
      "#include \"plugins/cuda/cpu_runner/device_on_cpu.h\"\n"
      "#include \"plugins/cuda/cpu_runner/fused_variants.h\"\n";
  std::string rows;
  const std::vector<RegionCase> cases = RegionCases();
  const std::vector<RegionVariant> variants = RegionVariants();
  for (size_t v = slice; v < variants.size(); v += slices) {
    text += TextOf(variants[v], cases[variants[v].number_of_case], v);
    rows += fmt::format(
        "    [](const void* given) {{\n"
        "      const auto& all = *static_cast<const FusedArguments*>(given);\n"
        "      const void* source = &all.source;\n"
        "      const void* sink = &all.sink;\n"
        "      fused_{0}::cotune_kernel_{0}(\n"
        "          all.kernel,\n"
        "          *static_cast<const fused_{0}::cotune::cuda::SourceArguments*>(source),\n"
        "          *static_cast<const fused_{0}::cotune::cuda::SinkArguments*>(sink));\n    }},\n",
        v);
  }
  return text + fmt::format(
                    "namespace cotune::cuda::cpu {{\nstatic const PlainFunction kKernels[] = "
                    "{{\n{}}};\nconst std::span<const PlainFunction> kFusedSlice{} = kKernels;\n"
                    "}}  // namespace cotune::cuda::cpu\n",
                    rows, slice);
}

}  // namespace
}  // namespace cotune::cuda

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  std::ofstream(argv[3]) << cotune::cuda::SliceText(std::strtoul(argv[1], nullptr, 10),
                                                    std::strtoul(argv[2], nullptr, 10));
  return 0;
}
