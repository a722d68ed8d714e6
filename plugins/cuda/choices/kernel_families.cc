#include "plugins/cuda/choices/kernel_families.h"

#include "plugins/cuda/choices/copy_list.h"
#include "plugins/cuda/choices/family_rules.h"
#include "plugins/cuda/choices/queued_shape.h"

namespace cotune::cuda {
namespace {

using sdk::Problem;
using enum sdk::Collective;

// A kernel that only moves data takes less time than the copies beside it, and slows them down
// where it has more blocks: all_gather of 512 MB on 2 H100 takes 735 to 742 us with 16, 24 and 32
// blocks, 796 with 64 and 846 with 128. The root of a broadcast has to be twice as fast as the
// link.
std::vector<Shape> CopyShapes(const Problem& problem, Shares /*shares*/) {
  if (sdk::Reduces(problem)) return {{64, 512, UnrollFor(problem.world_size)}};
  return {{problem.collective == kBroadcast ? 32 : 24, 512, UnrollFor(2)}};
}

double CopyEngineCostUs(const Problem& problem, Shares /*shares*/, const Shape& /*shape*/) {
  return CopyCostUs(problem);
}

constexpr ShapeModel kCopyModel{ShapeModel::Parameters::kNone, CopyShapes, nullptr,
                                CopyEngineCostUs};

constexpr Shares kWhole = Shares::kNone;
constexpr Shares kOfRanks = Shares::kOfRanks;
constexpr Shares kOfReceivers = Shares::kOfReceivers;
constexpr PeerBuffers kSends = PeerBuffers::kSend;
constexpr PeerBuffers kReceives = PeerBuffers::kReceive;
constexpr PeerBuffers kBoth = PeerBuffers::kBoth;
constexpr PeerBuffers kBothOrReceives = PeerBuffers::kBothOrReceiveInPlace;

// clang-format off
constexpr KernelFamily kFamilies[] = {
    {kAllReduce, "one_shot", "lamport", "all_reduce_one_shot.cu", kWhole, kStepModel,
     {NeedsSpareBits, NeedsFewBytesForOneShot}},
    {kAllReduce, "two_shot", "lamport", "all_reduce_two_shot.cu", kOfRanks, kStepModel,
     {NeedsSpareBits, NeedsBytesForTwoShot}},
    {kAllReduce, "one_shot", "escape", "all_reduce_one_shot.cu", kWhole, kStepModel,
     {NeedsNoSpareBits, NeedsFewBytesForOneShot}},
    {kAllReduce, "two_shot", "escape", "all_reduce_two_shot.cu", kOfRanks, kStepModel,
     {NeedsNoSpareBits, NeedsBytesForTwoShot}},
    {kAllReduce, "two_shot", "flagged", "all_reduce_two_shot_flagged.cu", kOfRanks, kFlaggedModel,
     {NeedsBytesForFlags}},
    {kAllReduce, "two_shot", "zero_copy", "all_reduce_two_shot_zero_copy.cu", kOfRanks,
     kZeroCopyModel, {NeedsRegisteredBuffers, NeedsBytesForBarriers}, nullptr, kBoth},
    {kAllReduce, "ring", "queued", "all_reduce_ring.cu", kWhole, kRingModel, {NeedsBytesForRing}},
    {kAllReduce, "tree", "queued", "all_reduce_tree.cu", kWhole, kTreeModel,
     {NeedsThreeRanksForTree, NeedsBytesForTree}},
    {kAllReduce, "two_shot", "copy_engine", "all_reduce_copies.cu", kWhole, kCopyModel,
     {NeedsRegisteredBuffers, NeedsTwoBuffers}, NeedsBytesForSegments, kBoth, Launch::kSegments},

    {kAllGather, "direct", "lamport", "blocks.cu", kWhole, kStepModel, {NeedsSpareBits}},
    {kAllGather, "direct", "escape", "blocks.cu", kWhole, kStepModel, {NeedsNoSpareBits}},
    {kAllGather, "direct", "flagged", "blocks_flagged.cu", kWhole, kFlaggedModel,
     {NeedsBytesForFlags}},
    {kAllGather, "direct", "zero_copy", "blocks_zero_copy.cu", kWhole, kZeroCopyModel,
     {NeedsRegisteredBuffers, NeedsBytesForBarriers}, nullptr, kReceives},
    {kAllGather, "ring", "queued", "blocks_ring.cu", kWhole, kRingModel, {NeedsBytesForRing}},
    {kAllGather, "direct", "copy_engine", "copies.cu", kWhole, kCopyModel,
     {NeedsRegisteredBuffers}, NeedsBytesForCopies, kBothOrReceives, Launch::kCopies},

    {kReduceScatter, "direct", "lamport", "reduce_scatter.cu", kWhole, kStepModel,
     {NeedsSpareBits}},
    {kReduceScatter, "direct", "escape", "reduce_scatter.cu", kWhole, kStepModel,
     {NeedsNoSpareBits}},
    {kReduceScatter, "direct", "flagged", "blocks_flagged.cu", kWhole, kFlaggedModel,
     {NeedsBytesForFlags}},
    {kReduceScatter, "direct", "zero_copy", "blocks_zero_copy.cu", kWhole, kZeroCopyModel,
     {NeedsRegisteredBuffers, NeedsBytesForBarriers}, nullptr, kSends},
    {kReduceScatter, "ring", "queued", "blocks_ring.cu", kWhole, kRingModel, {NeedsBytesForRing}},

    {kAllToAll, "direct", "lamport", "blocks.cu", kWhole, kStepModel, {NeedsSpareBits}},
    {kAllToAll, "direct", "escape", "blocks.cu", kWhole, kStepModel, {NeedsNoSpareBits}},
    {kAllToAll, "direct", "flagged", "blocks_flagged.cu", kWhole, kFlaggedModel,
     {NeedsBytesForFlags}},
    {kAllToAll, "direct", "zero_copy", "blocks_zero_copy.cu", kWhole, kZeroCopyModel,
     {NeedsRegisteredBuffers, NeedsTwoBuffers, NeedsBytesForBarriers}, nullptr, kReceives},
    {kAllToAll, "direct", "copy_engine", "copies.cu", kWhole, kCopyModel,
     {NeedsRegisteredBuffers, NeedsTwoBuffers}, NeedsBytesForCopies, kBoth, Launch::kCopies},

    {kBroadcast, "direct", "lamport", "broadcast.cu", kWhole, kStepModel, {NeedsSpareBits}},
    {kBroadcast, "direct", "escape", "broadcast.cu", kWhole, kStepModel,
     {NeedsFewBytesForOneSender}},
    {kBroadcast, "direct", "flagged", "broadcast_flagged.cu", kOfReceivers, kFlaggedModel,
     {NeedsBytesForFlags}},
    {kBroadcast, "direct", "zero_copy", "broadcast_zero_copy.cu", kOfReceivers, kZeroCopyModel,
     {NeedsRegisteredBuffers, NeedsBytesForBarriers}, nullptr, kReceives},
    {kBroadcast, "two_shot", "escape", "broadcast_two_shot.cu", kOfReceivers, kStepModel,
     {NeedsThreeRanksToPassOn, NeedsBytesForTwoShot}},
    {kBroadcast, "ring", "queued", "broadcast_ring.cu", kWhole, kRingModel, {NeedsBytesForRing}},
    {kBroadcast, "tree", "queued", "broadcast_tree.cu", kWhole, kTreeModel,
     {NeedsThreeRanksForTree, NeedsBytesForTree}},
    {kBroadcast, "direct", "copy_engine", "copies.cu", kWhole, kCopyModel,
     {NeedsRegisteredBuffers}, NeedsBytesForCopies, kReceives, Launch::kCopies},
};
// clang-format on

}  // namespace

std::span<const KernelFamily> KernelFamilies() { return kFamilies; }

std::string RefusalOf(const KernelFamily& family, const Problem& problem) {
  for (const Rule rule : family.rules) {
    if (rule == nullptr) break;
    if (std::string reason = rule(problem); !reason.empty()) return reason;
  }
  return "";
}

std::string ListingRefusalOf(const KernelFamily& family, const Problem& problem) {
  std::string reason = RefusalOf(family, problem);
  if (!reason.empty() || family.listing_rule == nullptr) return reason;
  return family.listing_rule(problem);
}

bool ReachesPeerSends(const KernelFamily& family, const Problem& problem) {
  const PeerBuffers buffers = family.peer_buffers;
  if (buffers == PeerBuffers::kBothOrReceiveInPlace) return !problem.in_place;
  return buffers == PeerBuffers::kSend || buffers == PeerBuffers::kBoth;
}

bool ReachesPeerReceives(const KernelFamily& family) {
  return family.peer_buffers != PeerBuffers::kNone && family.peer_buffers != PeerBuffers::kSend;
}

KernelSpec SpecOf(const KernelFamily& family, const Problem& problem) {
  KernelSpec spec;
  spec.source = family.source;
  spec.transport = family.transport;
  spec.collective = problem.collective;
  spec.type = problem.type;
  spec.reduction = problem.reduction;
  spec.world_size = problem.world_size;
  return spec;
}

}  // namespace cotune::cuda
