#include "plugins/cuda/compile/kernel_spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "plugins/cuda/kernels/kernel_sources.h"

namespace cotune::cuda {
namespace {

using sdk::Collective;
using sdk::ElementType;
using sdk::Reduction;

const char* Define(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "ALL_REDUCE";
    case Collective::kAllGather:
      return "ALL_GATHER";
    case Collective::kReduceScatter:
      return "REDUCE_SCATTER";
    case Collective::kAllToAll:
      return "ALL_TO_ALL";
    case Collective::kBroadcast:
      return "BROADCAST";
  }
  return "";
}

const char* Define(ElementType type) {
  switch (type) {
    case ElementType::kF32:
      return "F32";
    case ElementType::kF64:
      return "F64";
    case ElementType::kF16:
      return "F16";
    case ElementType::kBf16:
      return "BF16";
    case ElementType::kI32:
      return "I32";
    case ElementType::kI64:
      return "I64";
    case ElementType::kU8:
      return "U8";
  }
  return "";
}

const char* Define(Reduction reduction) {
  switch (reduction) {
    case Reduction::kSum:
      return "SUM";
    case Reduction::kProduct:
      return "PRODUCT";
    case Reduction::kMin:
      return "MIN";
    case Reduction::kMax:
      return "MAX";
    case Reduction::kAverage:
      return "AVERAGE";
  }
  return "";
}

// Options are written in capitals.
std::string Capitals(std::string_view text) {
  std::string capitals(text);
  for (char& letter : capitals) {
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  }
  return capitals;
}

}  // namespace

SourceText SourceOf(std::string_view file_name) {
  SourceText source;
  source.name = file_name;
  for (const KernelFile& file : kKernelFiles) {
    const std::string name(file.name);
    if (name == source.name) source.text = file.text;
    if (!name.ends_with(".cu")) source.headers.emplace_back(name, file.text);
  }
  return source;
}

SourceText SourceWith(std::string_view file, std::string_view program) {
  constexpr std::string_view kGenerated = "program.cuh";
  SourceText source = SourceOf(file);
  for (auto& [name, text] : source.headers) {
    if (name == kGenerated) text = program;
  }
  return source;
}

KernelUnit UnitOf(const KernelSpec& spec) { return {SourceOf(spec), NvrtcOptions(spec)}; }

std::vector<std::string> NvrtcOptions(const KernelSpec& spec) {
  std::vector<std::string> options = {
      // Lambdas with auto parameters are taken for host functions otherwise.
      "--device-as-default-execution-space",
      fmt::format("-DCOTUNE_COLLECTIVE_{}", Define(spec.collective)),
      fmt::format("-DCOTUNE_DTYPE_{}", Define(spec.type)),
      fmt::format("-DCOTUNE_TRANSPORT_{}", Capitals(spec.transport)),
      fmt::format("-DCOTUNE_WORLD_SIZE={}", spec.world_size),
      // An upper bound, but with rows: small blocks run the code of larger ones.
      fmt::format("-DCOTUNE_THREADS={}",
                  spec.row_threads != 0 ? spec.threads : std::max(spec.threads, 256)),
      fmt::format("-DCOTUNE_UNROLL={}", spec.unroll),
      fmt::format("-DCOTUNE_PDL={}", spec.uses_pdl ? 1 : 0),
  };
  const bool reduces =
      spec.collective == Collective::kAllReduce || spec.collective == Collective::kReduceScatter;
  if (reduces) options.push_back(fmt::format("-DCOTUNE_REDUCTION_{}", Define(spec.reduction)));
  if (spec.row_threads != 0) {
    options.push_back(fmt::format("-DCOTUNE_ROW_THREADS={}", spec.row_threads));
    options.push_back(fmt::format("-DCOTUNE_ROW_BLOCKS={}", spec.row_blocks));
  }
  return options;
}

}  // namespace cotune::cuda
