#include "plugins/cuda/choices/shape.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "plugins/cuda/choices/queued_shape.h"
#include "plugins/cuda/kernels/kernel_abi.h"

namespace cotune::cuda {
namespace {

using sdk::Collective;
using sdk::Problem;

constexpr uint64_t kPackBytes = 16;
constexpr int kBlocksMax = 256;
// Less than this is not worth a block of its own, where blocks have rounds.
constexpr uint64_t kBlockBytesMin = 2 << 10;
constexpr double kFlagExchangeUs = 2.5;
constexpr uint64_t kMultiprocessors = 128;  // of the GPUs that matter, a few less than there are

bool IsOneOf(int value, std::initializer_list<int> values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

uint64_t CeilDivide(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

bool HasRounds(const KernelSpec& spec) {
  return spec.transport == Transport::kFlagged || spec.transport == Transport::kZeroCopy;
}

// A broadcast in shares, which their receivers pass on.
bool PassesOn(const Problem& problem, const KernelSpec& spec) {
  return (HasRounds(spec) || spec.algorithm == Algorithm::kTwoShot) &&
         problem.collective == Collective::kBroadcast;
}

bool IsTwoShotAllReduce(const Problem& problem, const KernelSpec& spec) {
  return spec.algorithm == Algorithm::kTwoShot && problem.collective == Collective::kAllReduce;
}

// Packs that one thread after the other works off: all data, one block, or one share of it.
uint64_t WorkPacks(const Problem& problem, const KernelSpec& spec) {
  const uint64_t packs = CeilDivide(problem.count * sdk::ElementBytes(problem.type), kPackBytes);
  const auto ranks = static_cast<uint64_t>(problem.world_size);
  if (PassesOn(problem, spec)) return CeilDivide(packs, ranks - 1);
  return spec.algorithm == Algorithm::kTwoShot ? CeilDivide(packs, ranks) : packs;
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
  // What is added up, and then the results.
  if (IsTwoShotAllReduce(problem, spec)) slots *= 2;
  // One sender, and a greeting of each thread of each rank.
  if (problem.collective == Collective::kBroadcast && !PassesOn(problem, spec)) {
    slots = step_packs + ranks * step_packs / static_cast<uint64_t>(shape.unroll);
  }
  return slots * kPackBytes <= kScratchBytes;
}

// Adds a shape that is new and can run.
void Add(const Shape& shape, const Problem& problem, const KernelSpec& spec,
         std::vector<Shape>& shapes) {
  const bool is_new = std::find(shapes.begin(), shapes.end(), shape) == shapes.end();
  if (is_new && CanRun(problem, spec, shape)) shapes.push_back(shape);
}

uint64_t BlocksFor(uint64_t packs, int threads, int unroll) {
  return CeilDivide(packs, static_cast<uint64_t>(threads) * static_cast<uint64_t>(unroll));
}

// Shapes that give every thread 1, 2 or 4 packs at once, from one block up to as many as there is
// work for. Small work goes to small blocks, too: then it is spread over more multiprocessors, each
// of which takes only so many stores at once.
std::vector<Shape> StepShapes(const Problem& problem, const KernelSpec& spec) {
  std::vector<Shape> shapes;
  const uint64_t packs = std::max<uint64_t>(1, WorkPacks(problem, spec));
  const auto add = [&](int threads, int unroll, int blocks_max) {
    const uint64_t wanted = BlocksFor(packs, threads, unroll);
    const Shape shape{static_cast<int>(std::clamp<uint64_t>(wanted, 1, blocks_max)), threads,
                      unroll};
    Add(shape, problem, spec, shapes);
  };
  for (const int threads : {64, 128}) {
    const uint64_t wanted = BlocksFor(packs, threads, 1);
    if (wanted > 1 && wanted <= kMultiprocessors) add(threads, 1, kBlocksMax);
  }
  // More packs of so many peers do not fit into registers.
  const int unroll_max = problem.world_size <= 4 ? 4 : 2;
  for (int unroll = 1; unroll <= unroll_max; unroll *= 2) {
    // More packs a thread than there are only makes registers and multiprocessors idle.
    if (unroll > 1 && packs <= static_cast<uint64_t>(unroll) * 1024) continue;
    add(256, unroll, kBlocksMax);
    add(512, unroll, kBlocksMax);
    // One for each multiprocessor. Fewer won nowhere on 2 and 4 H200, in bf16.
    add(512, unroll, static_cast<int>(kMultiprocessors));
  }
  return shapes;
}

// Grids up to the size of the GPU, each with all of `shapes`, as long as blocks have work.
template <typename AddShapes>
void ForEachGrid(const Problem& problem, const KernelSpec& spec, AddShapes add_shapes) {
  const uint64_t bytes = WorkPacks(problem, spec) * kPackBytes;
  for (const int blocks : {64, 128}) {
    const uint64_t block_bytes = CeilDivide(bytes, static_cast<uint64_t>(blocks));
    if (blocks > 64 && block_bytes < kBlockBytesMin) break;
    add_shapes(blocks, block_bytes);
  }
}

// What all blocks send to one peer in a round of kernels in two stages is not worth a flag below
// this: a round of a broadcast takes 2.5 us for its flags, and the link 4.2 us for three peers.
constexpr uint64_t kRoundBytesMin = 512 << 10;

// Chunks that are small enough to fill and drain the link fast, or large enough to have few flags.
// In two stages, every launch has a round or two more than it has chunks: where there are few of
// them that is felt, up to some 100 MB, and smaller ones are tried on the largest grid.
std::vector<Shape> FlaggedShapes(const Problem& problem, const KernelSpec& spec) {
  std::vector<Shape> shapes;
  const bool has_stages = spec.algorithm == Algorithm::kTwoShot || PassesOn(problem, spec);
  ForEachGrid(problem, spec, [&](int blocks, uint64_t block_bytes) {
    const bool is_large = block_bytes * static_cast<uint64_t>(blocks) >= (8 << 20);
    for (const int chunk_bytes : {4 << 10, 8 << 10, 16 << 10, 32 << 10}) {
      const auto round_bytes = static_cast<uint64_t>(blocks) * static_cast<uint64_t>(chunk_bytes);
      // A round of all_reduce sends twice as much.
      const uint64_t least = PassesOn(problem, spec) ? kRoundBytesMin : kRoundBytesMin / 2;
      const bool has_few = has_stages && blocks == 128 && block_bytes < (1 << 20);
      if (chunk_bytes == (4 << 10) ? !has_few : chunk_bytes == (32 << 10) && has_few) continue;
      if (has_stages && (is_large || PassesOn(problem, spec)) && round_bytes < least &&
          static_cast<uint64_t>(chunk_bytes) < block_bytes) {
        continue;
      }
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

constexpr double kLaunchUs = 1.5;
constexpr double kExchangeUs = 1.2;
constexpr double kPlainBytesPerUs = 365'000;
constexpr double kBlockBytesPerUs = 50'000;  // of one multiprocessor

// All rounds take as long as the slower of two: the link with what all blocks send in one, or a
// block with its own and its flags. The first round that passes on or adds up comes one or two
// behind the first that sends, and so do the last ones.
double FlaggedUs(double bytes_out, double stages, uint64_t work_bytes, const Shape& shape) {
  const auto rounds = static_cast<double>(CeilDivide(
      work_bytes, static_cast<uint64_t>(shape.blocks) * static_cast<uint64_t>(shape.chunk_bytes)));
  const double link_us = bytes_out / rounds / kPlainBytesPerUs;
  const double block_us = kFlagExchangeUs + bytes_out / rounds / shape.blocks / kBlockBytesPerUs;
  return (rounds + stages) * std::max(link_us, block_us);
}

// What a link carries at most; a little less where data is looked at and slots are emptied.
double LinkBytesPerUs(const KernelSpec& spec, const Shape& shape) {
  constexpr double kReadBytesPerUs = 11'000;  // as far as it waits for what it reads from peers
  if (spec.transport == Transport::kZeroCopy) {
    return std::min(kPlainBytesPerUs, shape.blocks * kReadBytesPerUs);
  }
  return 350'000;
}

}  // namespace

int UnrollFor(int world_size) { return world_size == 2 ? 4 : world_size <= 4 ? 2 : 1; }

std::vector<Shape> ShapesFor(const Problem& problem, const KernelSpec& spec) {
  if (spec.transport == Transport::kFlagged) return FlaggedShapes(problem, spec);
  if (spec.transport == Transport::kZeroCopy) return ZeroCopyShapes(problem, spec);
  if (spec.transport == Transport::kQueued) return QueuedShapes(problem, spec);
  return StepShapes(problem, spec);
}

bool CanRun(const Problem& problem, const KernelSpec& spec, const Shape& shape) {
  if (spec.transport == Transport::kQueued) return CanRunQueued(problem, spec, shape);
  const bool has_chunks = spec.transport == Transport::kFlagged;
  return shape.blocks >= 1 && shape.blocks <= kBlocksMax &&
         IsOneOf(shape.threads, {64, 128, 256, 512}) && IsOneOf(shape.unroll, {1, 2, 4}) &&
         (has_chunks ? shape.chunk_bytes >= 1024 && shape.chunk_bytes % 512 == 0
                     : shape.chunk_bytes == 0) &&
         Fits(problem, spec, shape);
}

double CostUs(const Problem& problem, const KernelSpec& spec, const Shape& shape) {
  if (spec.transport == Transport::kQueued) return QueuedCostUs(problem, spec);
  // Two hops; with two ranks a broadcast has nobody to pass on to.
  const bool has_results =
      spec.algorithm == Algorithm::kTwoShot || (PassesOn(problem, spec) && problem.world_size > 2);
  // One round before the callers' buffers are used, one after it.
  const double exchanges = has_results || spec.transport == Transport::kZeroCopy ? 2 : 1;
  // In shares, the root sends each of them once, and their receivers pass on as much.
  const double copies = (IsTwoShotAllReduce(problem, spec) ? 2 : 1) * (problem.world_size - 1.0);
  const uint64_t packs = WorkPacks(problem, spec);
  const double bytes_out = static_cast<double>(packs) * copies * static_cast<double>(kPackBytes);
  if (spec.transport == Transport::kFlagged) {
    return kLaunchUs +
           FlaggedUs(bytes_out, exchanges, std::max<uint64_t>(1, packs * kPackBytes), shape);
  }
  const double exchange_us = HasRounds(spec) ? kFlagExchangeUs : kExchangeUs;
  return kLaunchUs + exchanges * exchange_us + bytes_out / LinkBytesPerUs(spec, shape);
}

}  // namespace cotune::cuda
