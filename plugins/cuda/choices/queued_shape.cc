#include "plugins/cuda/choices/queued_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "plugins/cuda/kernels/kernel_abi.h"

namespace cotune::cuda {
namespace {

using sdk::Collective;
using sdk::Problem;
using sdk::Reduction;

// Where every GPU reaches every other at once, two exchanges are faster below these sizes than many
// hops, and above them than a tree.
constexpr uint64_t kRingBytesMin = 8 << 20;
constexpr uint64_t kTreeBytesMin = 512 << 10;
constexpr uint64_t kTreeBytesMax = 32 << 20;

// Partial sums of 16-bit floats travel in f32 (kernels/queue_steps.cuh).
uint64_t PartialWidth(const Problem& problem) {
  const bool is_operand =
      problem.reduction == Reduction::kMin || problem.reduction == Reduction::kMax;
  return sdk::Reduces(problem) && sdk::IsNarrowFloat(problem.type) && !is_operand ? 2 : 1;
}

// The largest of some chunk sizes of which a message fits into its slot.
int ChunkBytes(const Problem& problem, int most) {
  int chunk_bytes = most;
  while (static_cast<uint64_t>(chunk_bytes) * PartialWidth(problem) >
         QueueSlotBytes(problem.world_size)) {
    chunk_bytes /= 2;
  }
  return chunk_bytes;
}

}  // namespace

std::vector<Shape> QueuedShapes(const Problem& problem, const KernelSpec& spec) {
  const Shape many{static_cast<int>(kQueueBlocksMax), 512, 2, ChunkBytes(problem, 16 << 10)};
  const Shape few{32, 512, 2, ChunkBytes(problem, 32 << 10)};
  if (spec.algorithm == Algorithm::kTree) return {few};
  if (problem.collective == Collective::kAllReduce) return {many, few};
  return {many};
}

bool CanRunQueued(const Problem& problem, const KernelSpec& /*spec*/, const Shape& shape) {
  // More packs at once spill registers where there are sums.
  const bool fits_registers =
      shape.unroll == 1 || shape.unroll == 2 || (shape.unroll == 4 && !sdk::Reduces(problem));
  return shape.blocks >= 1 && shape.blocks <= static_cast<int>(kQueueBlocksMax) &&
         (shape.threads == 256 || shape.threads == 512) && fits_registers &&
         shape.chunk_bytes >= 1024 && shape.chunk_bytes % 512 == 0 &&
         static_cast<uint64_t>(shape.chunk_bytes) * PartialWidth(problem) <=
             QueueSlotBytes(problem.world_size);
}

double QueuedCostUs(const Problem& problem, const KernelSpec& spec) {
  constexpr double kLaunchUs = 1.5;
  constexpr double kHopUs = 3.5;
  constexpr double kBytesPerUs = 330'000;
  const auto ranks = static_cast<unsigned int>(problem.world_size);
  const double peers = problem.world_size - 1.0;
  const auto bytes = static_cast<double>(problem.count * sdk::ElementBytes(problem.type));
  const auto width = static_cast<double>(PartialWidth(problem));
  const bool is_tree = spec.algorithm == Algorithm::kTree;
  const double depth = is_tree ? std::bit_width(ranks) - 1 : peers;
  if (problem.collective == Collective::kAllReduce) {
    // Once with partial sums and once with results.
    return kLaunchUs + 2 * depth * kHopUs + (width + 1) * bytes * peers / ranks / kBytesPerUs;
  }
  // In a tree the root sends all to two.
  const double copies =
      problem.collective == Collective::kBroadcast ? (is_tree ? 2 : 1) : peers * width;
  return kLaunchUs + depth * kHopUs + copies * bytes / kBytesPerUs;
}

std::string QueuedRefusal(const Problem& problem, Algorithm algorithm) {
  const uint64_t bytes = sdk::ProblemBytes(problem);
  if (algorithm == Algorithm::kRing) {
    if (bytes >= kRingBytesMin) return "";
    return fmt::format("data takes a hop after the other; not offered below {} bytes",
                       kRingBytesMin);
  }
  if (problem.world_size == 2) return "a tree of two ranks is a ring";
  if (bytes >= kTreeBytesMin && bytes <= kTreeBytesMax) return "";
  return fmt::format("others are faster for less or more; not offered but from {} to {} bytes",
                     kTreeBytesMin, kTreeBytesMax);
}

}  // namespace cotune::cuda
