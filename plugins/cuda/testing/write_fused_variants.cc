// Writes a C++ file that holds fused kernels, so that they are compiled for the CPU.
//
// usage: write_fused_variants SLICE SLICES OUTPUT | write_fused_variants mutants OUTPUT
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/cuda/compile/kernel_spec.h"
#include "plugins/cuda/fused/leaf_region.h"
#include "plugins/cuda/fused/row_list.h"
#include "plugins/cuda/testing/inlined_text.h"
#include "plugins/cuda/testing/region_cases.h"
#include "plugins/cuda/testing/region_mutants.h"

namespace cotune::cuda {
namespace {

// The text of the kernel with all headers.
std::string KernelText(const KernelSpec& spec, const LeafRegion& region) {
  return InlinedText(SourceWith(spec.source, LeafRegionText(region, RowSideOf(spec))));
}

// The options of the compiler as macros, and the text of the kernel in a namespace.
std::string TextOf(const KernelSpec& spec, const std::string& kernel, size_t number) {
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
      defines, number, kernel, undefines);
}

std::string HeadText(std::string_view header) {
  return fmt::format(
      "#include \"plugins/cuda/cpu_runner/device_on_cpu.h\"\n"
      "#include \"plugins/cuda/cpu_runner/{}.h\"\n",
      header);
}

// A function that calls the kernel, as an element of the array.
std::string EntryText(size_t number) {
  return fmt::format(
      "    [](const void* given) {{\n"
      "      const auto& all = *static_cast<const FusedArguments*>(given);\n"
      "      const void* source = &all.source;\n"
      "      const void* sink = &all.sink;\n"
      "      fused_{0}::cotune_kernel_{0}(\n"
      "          all.kernel,\n"
      "          *static_cast<const fused_{0}::cotune::cuda::SourceArguments*>(source),\n"
      "          *static_cast<const fused_{0}::cotune::cuda::SinkArguments*>(sink));\n    }},\n",
      number);
}

std::string ArrayText(std::string_view name, const std::string& entries) {
  return fmt::format(
      "namespace cotune::cuda::cpu {{\nstatic const PlainFunction kKernels[] = "
      "{{\n{}}};\nconst std::span<const PlainFunction> {} = kKernels;\n"
      "}}  // namespace cotune::cuda::cpu\n",
      entries, name);
}

std::string SliceText(size_t slice, size_t slices) {
  std::string text = HeadText("fused_variants");
  std::string entries;
  const std::vector<RegionCase> cases = RegionCases();
  const std::vector<RegionVariant> variants = RegionVariants();
  for (size_t v = slice; v < variants.size(); v += slices) {
    const LeafRegion region =
        LeafRegionAt(cases[variants[v].number_of_case], 1, variants[v].world_size);
    const KernelSpec spec = SpecOf(variants[v], region);
    text += TextOf(spec, KernelText(spec, region), v);
    entries += EntryText(v);
  }
  return text + ArrayText(fmt::format("kFusedSlice{}", slice), entries);
}

// Aborts if the text to be replaced does not occur, or occurs twice: the mutant would have no
// fault, or another one.
std::string WithFault(std::string kernel, const RegionMutant& mutant) {
  if (mutant.is_right()) return kernel;
  const size_t at = kernel.find(mutant.replaced);
  if (at == std::string::npos || kernel.find(mutant.replaced, at + 1) != std::string::npos) {
    std::fprintf(stderr, "mutant \"%s\": the kernel does not have this text once: %s\n",
                 std::string(mutant.name).c_str(), mutant.replaced.c_str());
    std::abort();
  }
  return kernel.replace(at, mutant.replaced.size(), mutant.by);
}

std::string MutantsText() {
  std::string text = HeadText("fused_mutants");
  std::string entries;
  const std::vector<RegionCase> cases = RegionCases();
  const std::vector<RegionMutant> mutants = AllMutants();
  for (size_t m = 0; m < mutants.size(); ++m) {
    const RegionVariant& variant = mutants[m].variant;
    const LeafRegion region = LeafRegionAt(cases[variant.number_of_case], 1, variant.world_size);
    const KernelSpec spec = SpecOf(variant, region);
    text += TextOf(spec, WithFault(KernelText(spec, region), mutants[m]), m);
    entries += EntryText(m);
  }
  return text + ArrayText("kFusedMutants", entries);
}

}  // namespace
}  // namespace cotune::cuda

int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "mutants") {
    std::ofstream(argv[2]) << cotune::cuda::MutantsText();
    return 0;
  }
  if (argc != 4) return 2;
  std::ofstream(argv[3]) << cotune::cuda::SliceText(std::strtoul(argv[1], nullptr, 10),
                                                    std::strtoul(argv[2], nullptr, 10));
  return 0;
}
