#include "plugins/cuda/fused/fused_list.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "plugins/cuda/choices/family_rules.h"
#include "plugins/cuda/fused/row_list.h"

namespace cotune::cuda {
namespace {

using sdk::Fail;
using sdk::Result;

constexpr sdk::Collective kAllReduce = sdk::Collective::kAllReduce;

constexpr KernelFamily kFamilies[] = {
    {kAllReduce,
     "one_shot_leaves",
     "lamport",
     "all_reduce_one_shot_leaves.cu",
     Shares::kNone,
     kLeafModel,
     {NeedsSpareBits, NeedsFewBytesForOneShot}},
    {kAllReduce,
     "two_shot_leaves",
     "lamport",
     "all_reduce_two_shot_leaves.cu",
     Shares::kOfRanks,
     kLeafModel,
     {NeedsSpareBits, NeedsBytesForTwoShot}},
    {kAllReduce,
     "one_shot_batched_leaves",
     "lamport",
     "all_reduce_one_shot_batched_leaves.cu",
     Shares::kNone,
     kBatchedLeafModel,
     {NeedsSpareBits, NeedsTwoRanks},
     NeedsBytesForBatches},
    {kAllReduce,
     "one_shot_leaves",
     "escape",
     "all_reduce_one_shot_leaves.cu",
     Shares::kNone,
     kLeafModel,
     {NeedsNoSpareBits, NeedsFewBytesForOneShot}},
    {kAllReduce,
     "two_shot_leaves",
     "escape",
     "all_reduce_two_shot_leaves.cu",
     Shares::kOfRanks,
     kLeafModel,
     {NeedsNoSpareBits, NeedsBytesForTwoShot}},
    {kAllReduce,
     "two_shot_leaves",
     "flagged",
     "all_reduce_two_shot_flagged_leaves.cu",
     Shares::kOfRanks,
     kFlaggedModel,
     {NeedsBytesForFlags}},
};

Result<void> CheckRanks(const LeafRegion& region) {
  if (region.problem.world_size > 1) return {};
  return Fail(COTUNE_UNSUPPORTED, "one rank alone has nothing to exchange while it computes");
}

}  // namespace

std::span<const KernelFamily> FusedFamilies() { return kFamilies; }

Result<std::vector<Choice>> ListFused(const LeafRegion& region, const ChoiceLimits& limits) {
  COTUNE_RETURN_IF_ERROR(CheckRanks(region));
  if (region.has_rows()) return ListRowChoices(region, limits);
  std::vector<Choice> choices = ListChoices(region.problem, limits, FusedFamilies());
  // The program as it is remains the default.
  for (Choice& choice : choices) choice.is_default = false;
  return choices;
}

Result<Choice> FindFused(const LeafRegion& region, std::string_view name,
                         const ChoiceLimits& limits) {
  COTUNE_RETURN_IF_ERROR(CheckRanks(region));
  if (region.has_rows()) return FindRowChoice(region, name, limits);
  return FindChoice(region.problem, name, limits, FusedFamilies());
}

bool IsFusedName(std::string_view name) {
  const std::string_view algorithm = name.substr(0, name.find('?'));
  return std::any_of(std::begin(kFamilies), std::end(kFamilies),
                     [&](const KernelFamily& each) { return each.algorithm == algorithm; });
}

KernelUnit UnitOf(const LeafRegion& region, const Choice& choice) {
  KernelUnit unit{SourceWith(choice.spec.source, LeafRegionText(region, RowSideOf(choice.spec))),
                  NvrtcOptions(choice.spec)};
  // As parts are compiled, so that both give the same bits.
  unit.options.emplace_back("--fmad=false");
  return unit;
}

}  // namespace cotune::cuda
