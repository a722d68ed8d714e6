#include "plugins/cuda/shape.h"

#include <algorithm>
#include <cstdint>

#include "plugins/cuda/kernels/kernel_abi.h"
#include "plugins/cuda/queued_shape.h"

namespace cotune::cuda {
namespace {

using border::Collective;
using border::Problem;

constexpr uint64_t kPackBytes = 16;
constexpr int kBlocksMax = 256;
// Less than this is not worth a block of its own, where blocks have rounds.
constexpr uint64_t kBlockBytesMin = 2 << 10;
constexpr double kFlagExchangeUs = 2.5;

uint64_t CeilDivide(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

bool HasRounds(const KernelSpec& spec) {
  return spec.transport == Transport::kFlagged || spec.transport == Transport::kZeroCopy;
}

// A broadcast in shares, which their receivers pass on.
bool PassesOn(const Problem& problem, const KernelSpec& spec) {
  return (HasRounds(spec) || spec.transport == Transport::kBits) &&
         problem.collective == Collective::kBroadcast;
}

// Packs that one thread after the other works off: all data, one block, or one share of it.
uint64_t WorkPacks(const Problem& problem, const KernelSpec& spec) {
  const uint64_t packs = CeilDivide(problem.count * border::ElementBytes(problem.type), kPackBytes);
  const auto ranks = static_cast<uint64_t>(problem.world_size);
  if (spec.algorithm == Algorithm::kTwoShot) return CeilDivide(packs, ranks);
  return PassesOn(problem, spec) ? CeilDivide(packs, ranks - 1) : packs;
}

// Bytes that take one pack over the link: with "bits", 8 for all packs of a thread beside them.
double SlotBytes(Transport transport, int unroll) {
  if (transport == Transport::kBits) return 16 + 8.0 / unroll;
  return transport == Transport::kLl ? 32 : 16;
}
double ScratchBytes(Transport transport) {
  return static_cast<double>(transport == Transport::kLl ? kLlBytes : kLamportBytes);
}

// Whether one step, or the slots of all rounds, fit into scratch.
bool Fits(const Problem& problem, const KernelSpec& spec, const Shape& shape) {
  if (HasRounds(spec)) {
    return shape.blocks <= static_cast<int>(kRoundBlocksMax) &&
           static_cast<uint64_t>(shape.chunk_bytes) <= FlaggedSlotBytes(problem.world_size);
  }
  const auto step_packs = static_cast<uint64_t>(shape.blocks) *
                          static_cast<uint64_t>(shape.threads) *
                          static_cast<uint64_t>(shape.unroll);
  const auto ranks = static_cast<uint64_t>(problem.world_size);
  uint64_t slots = ranks * step_packs;
  if (spec.algorithm == Algorithm::kTwoShot) slots *= 2;
  // One sender, and a greeting of each thread of each rank.
  if (problem.collective == Collective::kBroadcast && !PassesOn(problem, spec)) {
    slots = step_packs + ranks * step_packs / static_cast<uint64_t>(shape.unroll);
  }
  return static_cast<double>(slots) * SlotBytes(spec.transport, shape.unroll) <=
         ScratchBytes(spec.transport);
}

// Adds a shape that is new and can run.
void Add(const Shape& shape, const Problem& problem, const KernelSpec& spec,
         std::vector<Shape>& shapes) {
  const bool is_new = std::find(shapes.begin(), shapes.end(), shape) == shapes.end();
  if (is_new && CanRun(problem, spec, shape)) shapes.push_back(shape);
}

// Shapes that give every thread 1, 2 or 4 packs at once, from one block up to as many as there is
// work for.
std::vector<Shape> StepShapes(const Problem& problem, const KernelSpec& spec) {
  std::vector<Shape> shapes;
  const uint64_t packs = std::max<uint64_t>(1, WorkPacks(problem, spec));
  const auto add = [&](int threads, int unroll, int blocks_max) {
    const uint64_t wanted =
        CeilDivide(packs, static_cast<uint64_t>(threads) * static_cast<uint64_t>(unroll));
    const Shape shape{static_cast<int>(std::clamp<uint64_t>(wanted, 1, blocks_max)), threads,
                      unroll};
    Add(shape, problem, spec, shapes);
  };
  for (const int unroll : {1, 2, 4}) {
    // More packs a thread than there are only makes registers idle.
    if (unroll > 1 && packs <= static_cast<uint64_t>(unroll) * 256) continue;
    add(256, unroll, kBlocksMax);
    add(512, unroll, kBlocksMax);
    for (const int blocks_max : {16, 32, 64, 128}) add(512, unroll, blocks_max);
  }
  return shapes;
}

// Groups of 1, 2 or 4 packs, as many as there is work for and as fit into registers: all peers'
// groups are waited for at once. Few blocks with much each when a launch has to take several steps
// anyway.
std::vector<Shape> BitsShapes(const Problem& problem, const KernelSpec& spec) {
  std::vector<Shape> shapes;
  const uint64_t packs = std::max<uint64_t>(1, WorkPacks(problem, spec));
  const bool is_broadcast = problem.collective == Collective::kBroadcast;
  const int unroll_max = problem.world_size <= 4 ? 4 : is_broadcast ? 2 : 1;
  for (const int unroll : {1, 2, 4}) {
    // Groups that are hardly filled, and then grids that take steps without need.
    if (unroll > 1 && packs <= static_cast<uint64_t>(unroll) * 512) continue;
    if (unroll < unroll_max && packs > static_cast<uint64_t>(unroll) * 256 * 512) continue;
    if (unroll > unroll_max) continue;
    for (const int threads : {256, 512}) {
      for (const uint64_t blocks_max : {64, 128, 256}) {
        const uint64_t wanted =
            CeilDivide(packs, static_cast<uint64_t>(threads) * static_cast<uint64_t>(unroll));
        if (blocks_max == 64 && unroll < unroll_max) continue;
        if (blocks_max < 256 && threads == 256) continue;
        Add({static_cast<int>(std::min(wanted, blocks_max)), threads, unroll}, problem, spec,
            shapes);
      }
    }
  }
  return shapes;
}

// Packs of a thread at once for each peer, so that 4 to 8 are on their way: with more, "flagged"
// kernels spill registers.
int UnrollFor(int world_size) { return world_size == 2 ? 4 : world_size <= 4 ? 2 : 1; }

// Grids up to the size of the GPU, each with all of `shapes`, as long as blocks have work.
template <typename AddShapes>
void ForEachGrid(const Problem& problem, const KernelSpec& spec, AddShapes add_shapes) {
  const uint64_t bytes = WorkPacks(problem, spec) * kPackBytes;
  for (const int blocks : {16, 32, 64, 128}) {
    const uint64_t block_bytes = CeilDivide(bytes, static_cast<uint64_t>(blocks));
    if (blocks > 16 && block_bytes < kBlockBytesMin) break;
    add_shapes(blocks, block_bytes);
  }
}

// Chunks that are small enough to fill and drain the link fast, or large enough to have few flags.
std::vector<Shape> FlaggedShapes(const Problem& problem, const KernelSpec& spec) {
  std::vector<Shape> shapes;
  ForEachGrid(problem, spec, [&](int blocks, uint64_t block_bytes) {
    for (const int chunk_bytes : {8 << 10, 16 << 10, 32 << 10}) {
      Add({blocks, 512, UnrollFor(problem.world_size), chunk_bytes}, problem, spec, shapes);
      // Larger ones would be cut the same way.
      if (static_cast<uint64_t>(chunk_bytes) >= block_bytes) break;
    }
  });
  return shapes;
}

std::vector<Shape> ZeroCopyShapes(const Problem& problem, const KernelSpec& spec) {
  std::vector<Shape> shapes;
  const int most = problem.world_size <= 4 ? 4 : 2;
  ForEachGrid(problem, spec, [&](int blocks, uint64_t /*block_bytes*/) {
    for (const int unroll : {most / 2, most}) Add({blocks, 512, unroll}, problem, spec, shapes);
  });
  return shapes;
}

// What a link carries at most; a little less where data is looked at word by word and emptied.
double LinkBytesPerUs(const KernelSpec& spec, const Shape& shape, double sent_per_round) {
  constexpr double kPlainBytesPerUs = 365'000;
  constexpr double kBlockBytesPerUs = 50'000;  // of one multiprocessor
  constexpr double kReadBytesPerUs = 11'000;   // as far as it waits for what it reads from peers
  if (spec.transport == Transport::kZeroCopy) {
    return std::min(kPlainBytesPerUs, shape.blocks * kReadBytesPerUs);
  }
  if (spec.transport != Transport::kFlagged) return 350'000;
  // A block waits for flags once a round.
  const double round_us = kFlagExchangeUs + sent_per_round / kBlockBytesPerUs;
  return std::min(kPlainBytesPerUs, shape.blocks * sent_per_round / round_us);
}

}  // namespace

std::vector<Shape> ShapesFor(const Problem& problem, const KernelSpec& spec) {
  if (spec.transport == Transport::kBits) return BitsShapes(problem, spec);
  if (spec.transport == Transport::kFlagged) return FlaggedShapes(problem, spec);
  if (spec.transport == Transport::kZeroCopy) return ZeroCopyShapes(problem, spec);
  if (spec.transport == Transport::kQueued) return QueuedShapes(problem, spec);
  return StepShapes(problem, spec);
}

bool CanRun(const Problem& problem, const KernelSpec& spec, const Shape& shape) {
  if (spec.transport == Transport::kQueued) return CanRunQueued(problem, spec, shape);
  const bool has_chunks = spec.transport == Transport::kFlagged;
  return shape.blocks >= 1 && shape.blocks <= kBlocksMax &&
         (shape.threads == 256 || shape.threads == 512) &&
         (shape.unroll == 1 || shape.unroll == 2 || shape.unroll == 4) &&
         (has_chunks ? shape.chunk_bytes >= 1024 && shape.chunk_bytes % 512 == 0
                     : shape.chunk_bytes == 0) &&
         Fits(problem, spec, shape);
}

double CostUs(const Problem& problem, const KernelSpec& spec, const Shape& shape) {
  if (spec.transport == Transport::kQueued) return QueuedCostUs(problem, spec);
  constexpr double kLaunchUs = 1.5;
  const bool has_results = spec.algorithm == Algorithm::kTwoShot || PassesOn(problem, spec);
  // One round before the callers' buffers are used, one after it.
  const double exchanges = has_results || spec.transport == Transport::kZeroCopy ? 2 : 1;
  const double exchange_us = HasRounds(spec) ? kFlagExchangeUs : 1.2;
  // In shares, the root sends each of them once, and their receivers pass on as much.
  const double copies =
      (spec.algorithm == Algorithm::kTwoShot ? 2 : 1) * (problem.world_size - 1.0);
  const double bytes_out = static_cast<double>(WorkPacks(problem, spec)) * copies *
                           SlotBytes(spec.transport, shape.unroll);
  return kLaunchUs + exchanges * exchange_us +
         bytes_out / LinkBytesPerUs(spec, shape, shape.chunk_bytes * copies);
}

}  // namespace cotune::cuda
