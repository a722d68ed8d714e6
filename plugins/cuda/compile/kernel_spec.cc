#include "plugins/cuda/compile/kernel_spec.h"

#include <fmt/format.h>

#include <algorithm>

#include "plugins/cuda/kernels/kernel_sources.h"

namespace cotune::cuda {
namespace {

using sdk::Collective;
using sdk::ElementType;
using sdk::Reduction;

// The kernels of one kind of collective, by transport.
struct Sources {
  const char* self_announcing;  // lamport and escape
  const char* flagged;
  const char* zero_copy;
};

Sources SourcesOf(const KernelSpec& spec) {
  if (spec.collective == Collective::kBroadcast) {
    const bool is_two_shot = spec.algorithm == Algorithm::kTwoShot;
    return {is_two_shot ? "broadcast_two_shot.cu" : "broadcast.cu", "broadcast_flagged.cu",
            "broadcast_zero_copy.cu"};
  }
  if (spec.collective != Collective::kAllReduce) {
    const bool is_scatter = spec.collective == Collective::kReduceScatter;
    return {is_scatter ? "reduce_scatter.cu" : "blocks.cu", "blocks_flagged.cu",
            "blocks_zero_copy.cu"};
  }
  const bool is_one_shot = spec.algorithm == Algorithm::kOneShot;
  return {is_one_shot ? "all_reduce_one_shot.cu" : "all_reduce_two_shot.cu",
          "all_reduce_two_shot_flagged.cu", "all_reduce_two_shot_zero_copy.cu"};
}

const char* QueuedSource(const KernelSpec& spec) {
  const bool is_ring = spec.algorithm == Algorithm::kRing;
  if (spec.collective == Collective::kAllReduce) {
    return is_ring ? "all_reduce_ring.cu" : "all_reduce_tree.cu";
  }
  if (spec.collective == Collective::kBroadcast) {
    return is_ring ? "broadcast_ring.cu" : "broadcast_tree.cu";
  }
  return "blocks_ring.cu";
}

const char* SourceName(const KernelSpec& spec) {
  if (spec.transport == Transport::kQueued) return QueuedSource(spec);
  if (spec.transport == Transport::kCopyEngine) {
    return spec.collective == Collective::kAllReduce ? "all_reduce_copies.cu" : "copies.cu";
  }
  const Sources sources = SourcesOf(spec);
  if (spec.transport == Transport::kFlagged) return sources.flagged;
  if (spec.transport == Transport::kZeroCopy) return sources.zero_copy;
  return sources.self_announcing;
}

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

const char* Define(Transport transport) {
  switch (transport) {
    case Transport::kLamport:
      return "LAMPORT";
    case Transport::kEscape:
      return "ESCAPE";
    case Transport::kFlagged:
      return "FLAGGED";
    case Transport::kZeroCopy:
      return "ZERO_COPY";
    case Transport::kQueued:
      return "QUEUED";
    case Transport::kCopyEngine:
      return "COPY_ENGINE";
  }
  return "";
}

}  // namespace

const char* Name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kOneShot:
      return "one_shot";
    case Algorithm::kTwoShot:
      return "two_shot";
    case Algorithm::kDirect:
      return "direct";
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kTree:
      return "tree";
  }
  return "";
}

const char* Name(Transport transport) {
  switch (transport) {
    case Transport::kLamport:
      return "lamport";
    case Transport::kEscape:
      return "escape";
    case Transport::kFlagged:
      return "flagged";
    case Transport::kZeroCopy:
      return "zero_copy";
    case Transport::kQueued:
      return "queued";
    case Transport::kCopyEngine:
      return "copy_engine";
  }
  return "";
}

SourceText SourceOf(const KernelSpec& spec) {
  SourceText source;
  source.name = SourceName(spec);
  for (const KernelFile& file : kKernelFiles) {
    const std::string name(file.name);
    if (name == source.name) source.text = file.text;
    if (!name.ends_with(".cu")) source.headers.emplace_back(name, file.text);
  }
  return source;
}

std::vector<std::string> NvrtcOptions(const KernelSpec& spec) {
  std::vector<std::string> options = {
      // Lambdas with auto parameters are taken for host functions otherwise.
      "--device-as-default-execution-space",
      fmt::format("-DCOTUNE_COLLECTIVE_{}", Define(spec.collective)),
      fmt::format("-DCOTUNE_DTYPE_{}", Define(spec.type)),
      fmt::format("-DCOTUNE_TRANSPORT_{}", Define(spec.transport)),
      fmt::format("-DCOTUNE_WORLD_SIZE={}", spec.world_size),
      // An upper bound: small blocks run the code of larger ones.
      fmt::format("-DCOTUNE_THREADS={}", std::max(spec.threads, 256)),
      fmt::format("-DCOTUNE_UNROLL={}", spec.unroll),
      fmt::format("-DCOTUNE_PDL={}", spec.uses_pdl ? 1 : 0),
  };
  const bool reduces =
      spec.collective == Collective::kAllReduce || spec.collective == Collective::kReduceScatter;
  if (reduces) options.push_back(fmt::format("-DCOTUNE_REDUCTION_{}", Define(spec.reduction)));
  return options;
}

}  // namespace cotune::cuda
