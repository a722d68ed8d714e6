#include "plugins/cuda/choices/shape.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "plugins/cuda/kernels/kernel_abi.h"

namespace cotune::cuda {
namespace {

using sdk::Collective;
using sdk::Problem;

constexpr uint64_t kPackBytes = 16;
constexpr uint64_t kLeafElements = 8;  // see kernels/part_leaf.cuh
// Less than this is not worth a block of its own, where blocks have rounds.
constexpr uint64_t kBlockBytesMin = 2 << 10;
constexpr double kFlagExchangeUs = 2.5;
// Fewer bytes are sent as fast with 4 stores of a thread on their way as with 8.
constexpr uint64_t kManyStoresBlockBytesMin = 512 << 10;
constexpr int kMultiprocessors = 128;  // of the GPUs that matter, a few less than there are

bool IsOneOf(int value, std::initializer_list<int> values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

uint64_t CeilDivide(uint64_t a, uint64_t b) { return (a + b - 1) / b; }

// Packs that one thread after the other works off: all data, one block, or one share of it.
uint64_t WorkPacks(const Problem& problem, Shares shares) {
  const uint64_t packs = CeilDivide(problem.count * sdk::ElementBytes(problem.type), kPackBytes);
  const auto ranks = static_cast<uint64_t>(problem.world_size);
  if (shares == Shares::kOfReceivers) return CeilDivide(packs, ranks - 1);
  return shares == Shares::kOfRanks ? CeilDivide(packs, ranks) : packs;
}

// Every kernel is compiled for these shapes.
bool IsCompiledFor(const Shape& shape) {
  return shape.blocks >= 1 && shape.blocks <= kGridBlocksMax &&
         IsOneOf(shape.threads, {64, 128, 256, 512}) && IsOneOf(shape.unroll, {1, 2, 4});
}

// Returns true if one step fits into scratch. A thread has `unroll` units of unit_packs at once.
bool StepFits(const Problem& problem, Shares shares, const Shape& shape, uint64_t unit_packs = 1) {
  const auto step_packs = static_cast<uint64_t>(shape.blocks) *
                          static_cast<uint64_t>(shape.threads) *
                          static_cast<uint64_t>(shape.unroll) * unit_packs;
  const auto ranks = static_cast<uint64_t>(problem.world_size);
  uint64_t slots = ranks * step_packs;
  // There are slots for the parts that are added up, and then for the results.
  if (shares == Shares::kOfRanks) slots *= 2;
  // One sender, and a greeting of each thread of each rank.
  if (problem.collective == Collective::kBroadcast && shares == Shares::kNone) {
    slots = step_packs + ranks * step_packs / static_cast<uint64_t>(shape.unroll);
  }
  return slots * kPackBytes <= kScratchBytes;
}

bool CanRunSteps(const Problem& problem, Shares shares, const Shape& shape) {
  return IsCompiledFor(shape) && shape.chunk_bytes == 0 && StepFits(problem, shares, shape);
}

bool CanRunFlagged(const Problem& problem, Shares /*shares*/, const Shape& shape) {
  return IsCompiledFor(shape) && shape.blocks <= static_cast<int>(kRoundBlocksMax) &&
         shape.chunk_bytes >= 1024 && shape.chunk_bytes % 512 == 0 &&
         static_cast<uint64_t>(shape.chunk_bytes) <= FlaggedSlotBytes(problem.world_size);
}

// Whether a thread may have 8 packs at once: those for one peer fit into registers. It does not
// help where sums are made.
bool MayHaveManyStores(const Problem& problem) {
  return problem.world_size == 2 && !sdk::Reduces(problem);
}

bool CanRunZeroCopy(const Problem& problem, Shares /*shares*/, const Shape& shape) {
  Shape half = shape;
  if (MayHaveManyStores(problem) && shape.unroll == 8) half.unroll = 4;
  return IsCompiledFor(half) && shape.chunk_bytes == 0 &&
         shape.blocks <= static_cast<int>(kRoundBlocksMax);
}

// Adds a shape that is new and can run.
void Add(const Shape& shape, const Problem& problem, Shares shares, const ShapeModel& model,
         std::vector<Shape>& shapes) {
  const bool is_new = std::find(shapes.begin(), shapes.end(), shape) == shapes.end();
  if (is_new && model.can_run(problem, shares, shape)) shapes.push_back(shape);
}

uint64_t BlocksFor(uint64_t packs, int threads, int unroll) {
  return CeilDivide(packs, static_cast<uint64_t>(threads) * static_cast<uint64_t>(unroll));
}

// A thread has `unroll` units of unit_packs at once, and the problem a pack for each unit.
int FittedBlocks(const Problem& problem, Shares shares, int threads, int unroll, int blocks_max,
                 uint64_t unit_packs = 1) {
  const uint64_t blocks = BlocksFor(WorkPacks(problem, shares), threads, unroll);
  Shape shape{.blocks = static_cast<int>(
                  std::clamp<uint64_t>(blocks, 1, static_cast<uint64_t>(blocks_max))),
              .threads = threads,
              .unroll = unroll};
  while (shape.blocks > 1 && !StepFits(problem, shares, shape, unit_packs)) --shape.blocks;
  return shape.blocks;
}

int FittedStepBlocks(const Problem& problem, Shares shares, int threads, int unroll) {
  return FittedBlocks(problem, shares, threads, unroll, kGridBlocksMax);
}

// Shapes that give every thread 1, 2 or 4 packs at once, from one block up to as many as there is
// work for. Small work goes to small blocks, too: then it is spread over more multiprocessors, each
// of which takes only so many stores at once.
std::vector<Shape> StepShapes(const Problem& problem, Shares shares) {
  std::vector<Shape> shapes;
  const uint64_t packs = std::max<uint64_t>(1, WorkPacks(problem, shares));
  const auto add = [&](int threads, int unroll, int blocks_max) {
    const uint64_t wanted = BlocksFor(packs, threads, unroll);
    const Shape shape{.blocks = static_cast<int>(std::min<uint64_t>(wanted, blocks_max)),
                      .threads = threads,
                      .unroll = unroll,
                      .is_fitted = wanted <= static_cast<uint64_t>(blocks_max)};
    Add(shape, problem, shares, kStepModel, shapes);
  };
  for (const int threads : {64, 128}) {
    const uint64_t wanted = BlocksFor(packs, threads, 1);
    if (wanted > 1 && wanted <= kGridBlocksMax) add(threads, 1, kGridBlocksMax);
  }
  // More packs of so many peers do not fit into registers.
  const int unroll_max = problem.world_size <= 4 ? 4 : 2;
  for (int unroll = 1; unroll <= unroll_max; unroll *= 2) {
    // More packs a thread than there are only makes registers and multiprocessors idle.
    if (unroll > 1 && packs <= static_cast<uint64_t>(unroll) * 1024) continue;
    add(256, unroll, kGridBlocksMax);
    add(512, unroll, kGridBlocksMax);
    // One for each multiprocessor. Fewer won nowhere on 2 and 4 H200, in bf16.
    add(512, unroll, kMultiprocessors);
  }
  return shapes;
}

// ---- Kernels that work on leaves, which are one pack or several ----

uint64_t LeafPacks(const Problem& problem) {
  return CeilDivide(kLeafElements * sdk::ElementBytes(problem.type), kPackBytes);
}
// A problem with a pack for each leaf.
Problem PackForEachLeaf(const Problem& problem) {
  Problem packs = problem;
  packs.type = sdk::ElementType::kF32;
  packs.count = CeilDivide(problem.count, kLeafElements) * (kPackBytes / 4);
  return packs;
}

bool CanRunLeaves(const Problem& problem, Shares shares, const Shape& shape) {
  return IsCompiledFor(shape) && shape.chunk_bytes == 0 &&
         StepFits(problem, shares, shape, LeafPacks(problem));
}

int FittedLeafBlocks(const Problem& problem, Shares shares, int threads, int unroll) {
  return FittedBlocks(PackForEachLeaf(problem), shares, threads, unroll, kGridBlocksMax,
                      LeafPacks(problem));
}

bool CanRunBatches(const Problem& problem, Shares shares, const Shape& shape) {
  Shape small = shape;
  small.blocks = std::min(shape.blocks, kGridBlocksMax);
  return IsCompiledFor(small) && shape.blocks <= kBatchBlocksMax && shape.chunk_bytes == 0 &&
         StepFits(problem, shares, shape, LeafPacks(problem));
}

int FittedBatchBlocks(const Problem& problem, Shares shares, int threads, int unroll) {
  return FittedBlocks(PackForEachLeaf(problem), shares, threads, unroll, kBatchBlocksMax,
                      LeafPacks(problem));
}

// tp_linear of 32 MB in bf16 on 2 H200: 97.6, 99.5 and 100.3 us in this order; 108 with 128 blocks,
// and 99.8 with 512 blocks of 256 threads.
std::vector<Shape> BatchShapes(const Problem& problem, Shares shares) {
  constexpr Shape kShapes[] = {{kBatchBlocksMax, 512, 2}, {256, 512, 2}, {kBatchBlocksMax, 512, 1}};
  std::vector<Shape> shapes;
  for (Shape shape : kShapes) {
    const int fitted = FittedBatchBlocks(problem, shares, shape.threads, shape.unroll);
    const uint64_t leaves = WorkPacks(PackForEachLeaf(problem), shares);
    shape.is_fitted = fitted <= shape.blocks && static_cast<uint64_t>(fitted) ==
                                                    BlocksFor(leaves, shape.threads, shape.unroll);
    shape.blocks = std::min(shape.blocks, fitted);
    Add(shape, problem, shares, kBatchedLeafModel, shapes);
  }
  return shapes;
}

// Few of the shapes of the plain kernels, because each region has kernels of its own to compile:
// threads with more leaves lack registers for the operands of the operations.
std::vector<Shape> LeafShapes(const Problem& problem, Shares shares) {
  std::vector<Shape> shapes;
  for (Shape shape : StepShapes(PackForEachLeaf(problem), shares)) {
    const bool has_room = problem.world_size <= (shares == Shares::kNone ? 4 : 2);
    const int unroll_max = has_room && LeafPacks(problem) <= 2 ? 2 : 1;
    if (shape.threads < 128 || shape.unroll > unroll_max) continue;
    // A step of leaves may need more scratch than one of packs: fewer blocks take more steps then.
    while (shape.blocks > 1 && !CanRunLeaves(problem, shares, shape)) {
      --shape.blocks;
      shape.is_fitted = false;
    }
    Add(shape, problem, shares, kLeafModel, shapes);
  }
  return shapes;
}

// Grids up to the size of the GPU, each with all of `shapes`, as long as blocks have work.
template <typename AddShapes>
void ForEachGrid(const Problem& problem, Shares shares, AddShapes add_shapes) {
  const uint64_t bytes = WorkPacks(problem, shares) * kPackBytes;
  for (const int blocks : {64, 128}) {
    const uint64_t block_bytes = CeilDivide(bytes, static_cast<uint64_t>(blocks));
    if (blocks > 64 && block_bytes < kBlockBytesMin) break;
    add_shapes(blocks, block_bytes);
  }
}

// Fewer bytes than this, sent by all blocks to one peer in a round of kernels in two stages, are
// not worth a flag: a round of a broadcast takes 2.5 us for its flags, and the link 4.2 us for
// three peers.
constexpr uint64_t kRoundBytesMin = 512 << 10;

// Chunks that are small enough to fill and drain the link fast, or large enough to have few flags.
// In two stages, every launch has a round or two more than it has chunks: where there are few of
// them that is felt, up to some 100 MB, and smaller ones are tried on the largest grid.
std::vector<Shape> FlaggedShapes(const Problem& problem, Shares shares) {
  std::vector<Shape> shapes;
  const bool has_stages = shares != Shares::kNone;
  const bool passes_on = shares == Shares::kOfReceivers;
  ForEachGrid(problem, shares, [&](int blocks, uint64_t block_bytes) {
    const bool is_large = block_bytes * static_cast<uint64_t>(blocks) >= (8 << 20);
    // all_reduce on 2 H200 takes 55.0, 55.8 and 64.8 us for 16 MB in chunks of 32, 16 and 8 KiB on
    // the largest grid, and 195, 198 and 221 us for 64 MB (4 KiB: 349).
    const bool has_large_chunks = shares == Shares::kOfRanks && block_bytes >= (64 << 10);
    for (const int chunk_bytes : {4 << 10, 8 << 10, 16 << 10, 32 << 10}) {
      const auto round_bytes = static_cast<uint64_t>(blocks) * static_cast<uint64_t>(chunk_bytes);
      // A round of all_reduce sends twice as much.
      const uint64_t least = passes_on ? kRoundBytesMin : kRoundBytesMin / 2;
      const bool has_few =
          has_stages && blocks == 128 && block_bytes < (1 << 20) && !has_large_chunks;
      if (chunk_bytes == (4 << 10) ? !has_few : chunk_bytes == (32 << 10) && has_few) continue;
      if (has_stages && (is_large || passes_on) && round_bytes < least &&
          static_cast<uint64_t>(chunk_bytes) < block_bytes) {
        continue;
      }
      Add({blocks, 512, UnrollFor(problem.world_size), chunk_bytes}, problem, shares, kFlaggedModel,
          shapes);
      // Larger ones would be cut the same way.
      if (static_cast<uint64_t>(chunk_bytes) >= block_bytes) break;
    }
  });
  return shapes;
}

std::vector<Shape> ZeroCopyShapes(const Problem& problem, Shares shares) {
  std::vector<Shape> shapes;
  const int most = problem.world_size <= 4 ? 4 : 2;
  ForEachGrid(problem, shares, [&](int blocks, uint64_t block_bytes) {
    for (const int unroll : {most / 2, most}) {
      Add({blocks, 512, unroll}, problem, shares, kZeroCopyModel, shapes);
    }
    // 743 us instead of 757 for an all_gather of 512 MB on 2 H100.
    if (MayHaveManyStores(problem) && blocks == 128 && block_bytes >= kManyStoresBlockBytesMin) {
      Add({blocks, 512, 8}, problem, shares, kZeroCopyModel, shapes);
    }
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

// The rounds of a block that adds up take longer: it reads what it adds, and sends the sums. The
// link and the blocks each wait for the other now and then. Fitted to all_reduces of 16, 32 and 64
// MB on 2 H200, in chunks of 4 to 32 KiB on 64 and 128 blocks: all within 9 %.
double ReducedRoundsUs(double bytes_out, uint64_t work_bytes, const Shape& shape) {
  constexpr double kRoundUs = 4.2;
  constexpr double kReducedBytesPerUs = 11'300;  // by a block
  constexpr double kFirstAndLastUs = 7.5;
  const auto rounds = static_cast<double>(CeilDivide(
      work_bytes, static_cast<uint64_t>(shape.blocks) * static_cast<uint64_t>(shape.chunk_bytes)));
  const double link_us = bytes_out / rounds / kPlainBytesPerUs;
  const double block_us = kRoundUs + bytes_out / rounds / shape.blocks / kReducedBytesPerUs;
  // A maximum with a round edge. Roots have the same bits on all machines.
  const double link_squared = link_us * link_us;
  const double block_squared = block_us * block_us;
  const double round_us =
      std::sqrt(std::sqrt(link_squared * link_squared + block_squared * block_squared));
  return kFirstAndLastUs + rounds * round_us;
}

// Returns the bytes that a rank sends. In shares, the root sends each of them once, and their
// receivers pass on as much.
double BytesOut(const Problem& problem, Shares shares) {
  const double copies = (shares == Shares::kOfRanks ? 2 : 1) * (problem.world_size - 1.0);
  return static_cast<double>(WorkPacks(problem, shares)) * copies * static_cast<double>(kPackBytes);
}

// Two hops; with two ranks a broadcast has nobody to pass on to.
double Hops(const Problem& problem, Shares shares) {
  if (shares == Shares::kOfReceivers) return problem.world_size > 2 ? 2 : 1;
  return shares == Shares::kOfRanks ? 2 : 1;
}

double StepCostUs(const Problem& problem, Shares shares, const Shape& /*shape*/) {
  // A little less than a link carries at most: data is looked at, and slots are emptied.
  constexpr double kBytesPerUs = 350'000;
  return kLaunchUs + Hops(problem, shares) * kExchangeUs + BytesOut(problem, shares) / kBytesPerUs;
}

// All leaves of a thread are on their way while it waits, so that the link carries a little more.
double BatchCostUs(const Problem& problem, Shares shares, const Shape& /*shape*/) {
  constexpr double kBytesPerUs = 355'000;
  return kLaunchUs + kExchangeUs + BytesOut(problem, shares) / kBytesPerUs;
}

double FlaggedCostUs(const Problem& problem, Shares shares, const Shape& shape) {
  const uint64_t work_bytes = std::max<uint64_t>(1, WorkPacks(problem, shares) * kPackBytes);
  if (shares == Shares::kOfRanks) {
    return kLaunchUs + ReducedRoundsUs(BytesOut(problem, shares), work_bytes, shape);
  }
  return kLaunchUs + FlaggedUs(BytesOut(problem, shares), Hops(problem, shares), work_bytes, shape);
}

double ZeroCopyCostUs(const Problem& problem, Shares shares, const Shape& shape) {
  constexpr double kReadBytesPerUs = 11'000;  // as far as it waits for what it reads from peers
  const double bytes_per_us = std::min(kPlainBytesPerUs, shape.blocks * kReadBytesPerUs);
  // One round before the callers' buffers are used, one after it.
  return kLaunchUs + 2 * kFlagExchangeUs + BytesOut(problem, shares) / bytes_per_us;
}

}  // namespace

const ShapeModel kStepModel{ShapeModel::Parameters::kGrid, StepShapes, CanRunSteps, StepCostUs,
                            FittedStepBlocks};
const ShapeModel kLeafModel{ShapeModel::Parameters::kGrid, LeafShapes, CanRunLeaves, StepCostUs,
                            FittedLeafBlocks};
const ShapeModel kBatchedLeafModel{ShapeModel::Parameters::kGrid, BatchShapes, CanRunBatches,
                                   BatchCostUs, FittedBatchBlocks};
const ShapeModel kFlaggedModel{ShapeModel::Parameters::kGridAndChunk, FlaggedShapes, CanRunFlagged,
                               FlaggedCostUs};
const ShapeModel kZeroCopyModel{ShapeModel::Parameters::kGrid, ZeroCopyShapes, CanRunZeroCopy,
                                ZeroCopyCostUs};

int UnrollFor(int world_size) { return world_size == 2 ? 4 : world_size <= 4 ? 2 : 1; }

}  // namespace cotune::cuda
