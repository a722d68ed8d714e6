#include "plugins/cuda/choices/queued_shape.h"

#include <bit>
#include <cstdint>

#include "plugins/cuda/kernels/kernel_abi.h"

namespace cotune::cuda {
namespace {

using sdk::Collective;
using sdk::Problem;
using sdk::Reduction;

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

std::vector<Shape> RingShapes(const Problem& problem, Shares /*shares*/) {
  const Shape many{static_cast<int>(kQueueBlocksMax), 512, 2, ChunkBytes(problem, 16 << 10)};
  const Shape few{32, 512, 2, ChunkBytes(problem, 32 << 10)};
  if (problem.collective == Collective::kAllReduce) return {many, few};
  return {many};
}

std::vector<Shape> TreeShapes(const Problem& problem, Shares /*shares*/) {
  return {{32, 512, 2, ChunkBytes(problem, 32 << 10)}};
}

bool CanRun(const Problem& problem, Shares /*shares*/, const Shape& shape) {
  // More packs at once spill registers where there are sums.
  const bool fits_registers =
      shape.unroll == 1 || shape.unroll == 2 || (shape.unroll == 4 && !sdk::Reduces(problem));
  return shape.blocks >= 1 && shape.blocks <= static_cast<int>(kQueueBlocksMax) &&
         (shape.threads == 256 || shape.threads == 512) && fits_registers &&
         shape.chunk_bytes >= 1024 && shape.chunk_bytes % 512 == 0 &&
         static_cast<uint64_t>(shape.chunk_bytes) * PartialWidth(problem) <=
             QueueSlotBytes(problem.world_size);
}

// depth: hops to the last rank. copies: how often a rank sends the data of a collective that is no
// all_reduce.
double CostUs(const Problem& problem, double depth, double copies) {
  constexpr double kLaunchUs = 1.5;
  constexpr double kHopUs = 3.5;
  constexpr double kBytesPerUs = 330'000;
  const auto bytes = static_cast<double>(problem.count * sdk::ElementBytes(problem.type));
  if (problem.collective == Collective::kAllReduce) {
    const auto width = static_cast<double>(PartialWidth(problem));
    const double peers = problem.world_size - 1.0;
    // Once with partial sums and once with results.
    return kLaunchUs + 2 * depth * kHopUs +
           (width + 1) * bytes * peers / static_cast<unsigned int>(problem.world_size) /
               kBytesPerUs;
  }
  return kLaunchUs + depth * kHopUs + copies * bytes / kBytesPerUs;
}

double RingCostUs(const Problem& problem, Shares /*shares*/, const Shape& /*shape*/) {
  const double peers = problem.world_size - 1.0;
  const double copies = problem.collective == Collective::kBroadcast
                            ? 1
                            : peers * static_cast<double>(PartialWidth(problem));
  return CostUs(problem, peers, copies);
}

double TreeCostUs(const Problem& problem, Shares /*shares*/, const Shape& /*shape*/) {
  const int depth = std::bit_width(static_cast<unsigned int>(problem.world_size)) - 1;
  // The root sends all to two.
  return CostUs(problem, depth, 2);
}

}  // namespace

const ShapeModel kRingModel{ShapeModel::Parameters::kGridAndChunk, RingShapes, CanRun, RingCostUs};
const ShapeModel kTreeModel{ShapeModel::Parameters::kGridAndChunk, TreeShapes, CanRun, TreeCostUs};

}  // namespace cotune::cuda
