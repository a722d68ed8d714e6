#include "plugins/cuda/fused/row_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <utility>

#include "plugins/cuda/choices/family_rules.h"
#include "plugins/cuda/kernels/kernel_abi.h"
#include "plugins/cuda/parts/part_shape.h"
#include "plugins/cuda/parts/row_split.h"

namespace cotune::cuda {
namespace {

using sdk::Fail;
using sdk::Problem;
using sdk::Result;

constexpr uint64_t kPackBytes = 16;
constexpr uint64_t kBlockThreads = 256;
// Kernels have all leaves of a thread at once.
constexpr uint64_t kThreadLeavesMax = 4;

struct Algorithm {
  std::string_view name;
  std::string_view source;  // in kernels/
  bool has_owners;          // each rank adds up a share of the rows, and sends the sums to all
  bool splits;              // owners run the operations up to the reductions, too (row_split.h)
};
constexpr std::string_view kSplitSource = "all_reduce_two_shot_split_rows.cu";
constexpr Algorithm kAlgorithms[] = {
    {"one_shot_rows", "all_reduce_one_shot_rows.cu", false, false},
    {"two_shot_rows", "all_reduce_two_shot_rows.cu", true, false},
    {"two_shot_split_rows", kSplitSource, true, true},
};

struct RowShape {
  uint64_t blocks = 1;   // each row has so many: a cluster, if there are several
  uint64_t threads = 1;  // each block of a row has so many for it

  uint64_t all_threads() const { return blocks * threads; }
  uint64_t block_threads() const {
    return blocks == 1 ? std::max(threads, kBlockThreads) : threads;
  }
  uint64_t rows_of_block() const { return block_threads() / threads; }
};

// In the order in which choices are listed: those for few rows first. More threads of a row have
// fewer leaves each, and fewer rows run at the same time.
constexpr RowShape kShapes[] = {{8, 128}, {8, 256},  {4, 128}, {4, 256},
                                {2, 256}, {1, 1024}, {1, 512}, {1, 256}};

uint64_t CeilDivide(uint64_t count, uint64_t by) { return (count + by - 1) / by; }
uint64_t PeersOf(const LeafRegion& region) {
  return static_cast<uint64_t>(region.problem.world_size - 1);
}
uint64_t LeavesOf(const LeafRegion& region) { return CeilDivide(region.columns, kLeafColumns); }
uint64_t RowsOf(const LeafRegion& region) { return region.problem.count / region.columns; }
uint64_t LeavesOfThread(const LeafRegion& region, const RowShape& shape) {
  return CeilDivide(LeavesOf(region), shape.all_threads());
}
uint64_t PacksOfLeaf(const LeafRegion& region) {
  return CeilDivide(kLeafColumns * sdk::ElementBytes(region.problem.type), kPackBytes);
}

// An estimate of the registers of a thread.
uint64_t RegistersOf(const LeafRegion& region, const RowShape& shape) {
  constexpr uint64_t kOther = 40;  // addresses, indexes and what is computed with
  constexpr uint64_t kPacksAtOnceMax = 8;
  // Leaves of few packs are received whole, and several of them at once (row_region.cuh).
  const uint64_t of_leaf = PeersOf(region) * PacksOfLeaf(region);
  const uint64_t packs =
      of_leaf > kPacksAtOnceMax
          ? PeersOf(region)
          : of_leaf * std::min(LeavesOfThread(region, shape), kPacksAtOnceMax / of_leaf);
  const uint64_t held = HeldWordsOf(region.sink().part, region.sink().stage(), shape.all_threads());
  return held + 4 * packs + kOther;
}

// Returns true if an output of one number a row overwrites an input, which all threads of the row
// read.
bool OverwritesNumbers(const LeafSide& sink) {
  for (size_t o = 0; o < sink.part.outputs.size(); ++o) {
    const sdk::Value& value = sink.part.values[static_cast<size_t>(sink.part.outputs[o])];
    if (value.columns == 1 && sink.part.output_into[o] >= 0) return true;
  }
  return false;
}

// Returns true if the kernel can run in this shape, whatever the number of rows is.
bool CanRun(const LeafRegion& region, const Algorithm& algorithm, const RowShape& shape,
            const ChoiceLimits& limits) {
  // Clusters came with programmatic launch. Pushes between blocks do not order the loads before
  // them, so that a thread of another block may still read what the first one overwrites.
  if (shape.blocks > 1 && (!limits.has_pdl || OverwritesNumbers(region.sink()))) return false;
  // As many threads as the next power of two has leaves: more would have nothing to do.
  if (shape.all_threads() > std::bit_ceil(LeavesOf(region))) return false;
  const uint64_t leaves = LeavesOfThread(region, shape);
  if (leaves > kThreadLeavesMax) return false;
  // The elements of rows that are no whole leaves are loaded and stored one by one, which needs
  // registers for each of them: these are the shapes that were seen not to spill.
  if (region.columns % kLeafColumns != 0) {
    constexpr uint64_t kPacksMax = 2;
    constexpr uint64_t kOwnerThreadsMax = 512;
    const bool has_many_packs = leaves * PacksOfLeaf(region) > kPacksMax;
    if (leaves > 1 && (algorithm.has_owners || has_many_packs)) return false;
    if (algorithm.has_owners && shape.block_threads() > kOwnerThreadsMax) return false;
  }
  // A thread has its leaves of the rows of all owners at once, on their way to them.
  constexpr uint64_t kPacksToOwnersMax = 8;
  const uint64_t to_owners = leaves * PeersOf(region) * PacksOfLeaf(region);
  const bool has_many = leaves > 1 || PacksOfLeaf(region) > 2;
  if (algorithm.has_owners && has_many && to_owners > kPacksToOwnersMax) return false;
  const uint64_t held = HeldWordsOf(region.sink().part, region.sink().stage(), shape.all_threads());
  if (held > kHeldWordsMax) return false;
  constexpr uint64_t kRegistersOfProcessor = 65536;
  constexpr uint64_t kRegistersMax = 128;
  const uint64_t registers = std::min(
      kRegistersMax, kRegistersOfProcessor / std::max<uint64_t>(512, shape.block_threads()));
  return RegistersOf(region, shape) <= registers;
}

// Rows of which blocks are needed at the same time: all, or those of one owner.
uint64_t RowsAtOnce(const LeafRegion& region, const Algorithm& algorithm) {
  const auto ranks = static_cast<uint64_t>(region.problem.world_size);
  return algorithm.has_owners ? CeilDivide(RowsOf(region), ranks) : RowsOf(region);
}

// A cluster pays while the blocks of few rows leave room on the GPU.
bool IsWorthListing(const LeafRegion& region, const Algorithm& algorithm, const RowShape& shape) {
  constexpr uint64_t kBlocksOfClustersMax = 512;
  constexpr uint64_t kLargeBlocksMax = 132;
  const uint64_t rows = RowsAtOnce(region, algorithm);
  if (shape.blocks > 1) return rows * shape.blocks <= kBlocksOfClustersMax;
  return shape.threads < 1024 || rows <= kLargeBlocksMax;
}

// The shapes that kernels can run. Short rows have one, of one leaf a thread.
std::vector<RowShape> ShapesOf(const LeafRegion& region, const Algorithm& algorithm,
                               const ChoiceLimits& limits) {
  std::vector<RowShape> shapes;
  const auto add = [&](const RowShape& shape) {
    if (CanRun(region, algorithm, shape, limits)) shapes.push_back(shape);
  };
  for (const RowShape& shape : kShapes) add(shape);
  const RowShape narrow{1, std::bit_ceil(LeavesOf(region))};
  if (narrow.threads < kBlockThreads) add(narrow);
  return shapes;
}

// Blocks for all rows at once, as far as scratch allows.
uint64_t GridOf(const LeafRegion& region, const Algorithm& algorithm, const RowShape& shape) {
  const uint64_t leaves_of_block = shape.block_threads() * LeavesOfThread(region, shape);
  const uint64_t exchanges = algorithm.has_owners ? 2 : 1;
  const uint64_t leaf_bytes = leaves_of_block * PacksOfLeaf(region) * kPackBytes * exchanges;
  // One pack with the numbers of a row for each warp of its threads, or for each smaller row.
  const uint64_t lanes = std::min<uint64_t>(shape.threads, 32);
  const uint64_t number_bytes = algorithm.splits ? shape.block_threads() / lanes * kPackBytes : 0;
  const uint64_t block_bytes =
      (leaf_bytes + number_bytes) * static_cast<uint64_t>(region.problem.world_size);
  const uint64_t clusters = CeilDivide(RowsAtOnce(region, algorithm), shape.rows_of_block());
  const uint64_t most = kScratchBytes / (block_bytes * shape.blocks);
  return shape.blocks * std::max<uint64_t>(1, std::min(clusters, most));
}

// A rough price in microseconds, as that of other choices: the exchanges, the bytes over the link,
// and the reductions, which take longer with more leaves of a thread and across blocks.
double CostOf(const LeafRegion& region, const Algorithm& algorithm, const RowShape& shape) {
  constexpr double kExchangeUs = 2.0;
  constexpr double kBytesOfUs = 350e3;
  const auto ranks = static_cast<double>(region.problem.world_size);
  const double exchanges = algorithm.has_owners ? 2 : 1;
  const double sent = algorithm.has_owners ? 2 * (ranks - 1) / ranks : ranks - 1;
  const uint64_t rows_of_step =
      GridOf(region, algorithm, shape) / shape.blocks * shape.rows_of_block();
  const auto steps = static_cast<double>(CeilDivide(RowsAtOnce(region, algorithm), rows_of_step));
  const auto leaves = static_cast<double>(LeavesOfThread(region, shape));
  const double fold_us = 0.3 + 0.1 * leaves + 0.02 * static_cast<double>(shape.blocks);
  return exchanges * kExchangeUs +
         sent * static_cast<double>(sdk::ProblemBytes(region.problem)) / kBytesOfUs +
         steps * fold_us * (algorithm.has_owners && !algorithm.splits ? ranks : 1);
}

Choice KernelOf(const LeafRegion& region, const Algorithm& algorithm) {
  const Problem& problem = region.problem;
  Choice choice;
  choice.name = algorithm.name;
  choice.spec.source = algorithm.source;
  choice.spec.transport = NeedsSpareBits(problem).empty() ? "lamport" : "escape";
  choice.spec.collective = problem.collective;
  choice.spec.type = problem.type;
  choice.spec.reduction = problem.reduction;
  choice.spec.world_size = problem.world_size;
  return choice;
}

Choice ChoiceOf(const LeafRegion& region, const Algorithm& algorithm, const RowShape& shape,
                const ChoiceLimits& limits) {
  Choice choice = KernelOf(region, algorithm);
  choice.spec.threads = static_cast<int>(shape.block_threads());
  choice.spec.row_threads = static_cast<int>(shape.threads);
  choice.spec.row_blocks = static_cast<int>(shape.blocks);
  choice.spec.uses_pdl = limits.has_pdl;
  choice.blocks = static_cast<int>(GridOf(region, algorithm, shape));
  choice.cost_us = CostOf(region, algorithm, shape);
  choice.numerics = sdk::NumericsOf(region.problem, sdk::kRankOrderNumerics);
  choice.name =
      fmt::format("{}?cluster={}&pdl={}&row={}&transport={}", algorithm.name, shape.blocks,
                  limits.has_pdl ? 1 : 0, shape.threads, choice.spec.transport);
  return choice;
}

// Why a region of this size is not worth the algorithm; "": it is.
std::string ListingRefusalOf(const LeafRegion& region, const Algorithm& algorithm) {
  const bool is_pair = region.problem.world_size == 2;
  if (algorithm.has_owners) {
    if (is_pair) return "two ranks exchange as many bytes in one exchange";
    return NeedsBytesForTwoShot(region.problem);
  }
  return is_pair ? "" : NeedsFewBytesForOneShot(region.problem);
}

// Why no kernel runs the region; "": one does.
std::string RefusalOf(const LeafRegion& region, const Algorithm& algorithm,
                      const std::vector<RowShape>& shapes) {
  constexpr uint64_t kBytesMax = 256 << 20;
  if (sdk::ProblemBytes(region.problem) > kBytesMax) {
    return fmt::format("rows are counted in 32 bits; not offered above {} bytes", kBytesMax);
  }
  if (algorithm.splits) {
    const LeafSide& sink = region.sink();
    const auto split = SplitOf(sink.part, sink.stage(), sink.inputs);
    if (!split) return split.error().message;
  }
  if (!shapes.empty()) return "";
  return fmt::format("a thread would need more registers than there are, for rows of {} columns",
                     region.columns);
}

void AppendChoices(const LeafRegion& region, const Algorithm& algorithm, const ChoiceLimits& limits,
                   std::vector<Choice>& choices) {
  const std::vector<RowShape> shapes = ShapesOf(region, algorithm, limits);
  std::string reason = RefusalOf(region, algorithm, shapes);
  if (reason.empty()) reason = ListingRefusalOf(region, algorithm);
  if (!reason.empty()) {
    choices.push_back(KernelOf(region, algorithm));
    choices.back().reason = std::move(reason);
    return;
  }
  const size_t before = choices.size();
  for (const RowShape& shape : shapes) {
    if (!IsWorthListing(region, algorithm, shape)) continue;
    choices.push_back(ChoiceOf(region, algorithm, shape, limits));
  }
  // Some shape is listed for any number of rows.
  if (choices.size() == before) {
    choices.push_back(ChoiceOf(region, algorithm, shapes.back(), limits));
  }
}

}  // namespace

RowSide RowSideOf(const KernelSpec& spec) {
  return spec.source == kSplitSource ? RowSide::kSplit : RowSide::kWhole;
}

std::vector<Choice> ListRowChoices(const LeafRegion& region, const ChoiceLimits& limits) {
  std::vector<Choice> choices;
  for (const Algorithm& algorithm : kAlgorithms) {
    AppendChoices(region, algorithm, limits, choices);
  }
  return choices;
}

Result<Choice> FindRowChoice(const LeafRegion& region, std::string_view name,
                             const ChoiceLimits& limits) {
  for (const Algorithm& algorithm : kAlgorithms) {
    if (name.substr(0, name.find('?')) != algorithm.name) continue;
    const std::vector<RowShape> shapes = ShapesOf(region, algorithm, limits);
    if (const std::string reason = RefusalOf(region, algorithm, shapes); !reason.empty()) {
      return Fail(COTUNE_UNSUPPORTED, fmt::format("'{}' is refused: {}", name, reason));
    }
    for (const RowShape& shape : shapes) {
      Choice choice = ChoiceOf(region, algorithm, shape, limits);
      if (choice.name == name) return choice;
    }
  }
  return Fail(COTUNE_INVALID_ARGUMENT,
              fmt::format("'{}' is no choice of this region; list_choices names them", name));
}

}  // namespace cotune::cuda
