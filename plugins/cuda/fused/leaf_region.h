// Regions that one kernel runs: an all_reduce with elementwise operations before it, and
// elementwise operations or such that reduce rows after it; or several all_reduces as one, with
// elementwise operations.
#ifndef COTUNE_PLUGINS_CUDA_FUSED_LEAF_REGION_H_
#define COTUNE_PLUGINS_CUDA_FUSED_LEAF_REGION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "plugins/cuda/parts/part_stages.h"
#include "plugins/sdk/failure.h"
#include "plugins/sdk/problem.h"
#include "plugins/sdk/program.h"

namespace cotune::cuda {

// The operations on one side of the collective, as a part of one stage.
struct LeafSide {
  sdk::Program part;
  PartStages stages;
  // For each input of the part the input of the region; -1: the collective's value.
  std::vector<int> inputs;

  const PartStage& stage() const { return stages.stages.front(); }
};

// One collective of a region with the operations around it.
struct LeafPiece {
  LeafSide source;           // its only output is the collective's operand
  LeafSide sink;             // its input 0 is the collective's value
  std::vector<int> outputs;  // for each output of the sink, the output of the region
  uint64_t elements = 0;     // in the operand of the collective

  uint64_t leaves() const { return (elements + kLeafColumns - 1) / kLeafColumns; }
};

// A region, cut at its collectives. The kernel has the text of one piece: all pieces of a bucket
// have equal operations, which depend on neither the row nor the column.
struct LeafRegion {
  // Ranks compare it. For one collective it is the problem of that collective by itself, with the
  // digest of the region if that reduces rows: ranks with other columns would exchange other
  // leaves. For a bucket it is an all_reduce of the leaves of all pieces, which lie one after
  // another, with the digest of the region and of the sizes of its pieces.
  sdk::Problem problem;
  std::vector<LeafPiece> pieces;
  uint64_t columns = 1;  // those of the operand and the value

  const LeafSide& source() const { return pieces.front().source; }
  const LeafSide& sink() const { return pieces.front().sink; }
  bool is_bucket() const { return pieces.size() > 1; }
  // A kernel needs whole rows at once: operations after the collective reduce them, or the rows are
  // no whole leaves and operations depend on the row or the column.
  bool has_rows() const { return sink().stage().kind == StageKind::kRows; }
};

// COTUNE_UNSUPPORTED, with the reason, for a region that is none of these. Pure.
sdk::Result<LeafRegion> LeafRegionOf(const sdk::Program& region);

// The region that has no operation around this collective. COTUNE_UNSUPPORTED as for others. Pure.
sdk::Result<LeafRegion> BareLeafRegion(const sdk::Problem& problem);

// The ranks that run the operations on a row after the collective.
enum class RowSide {
  kWhole,  // by each rank, for all rows
  kSplit,  // in part by the owner of the row alone (parts/row_split.h), which has to be possible
};

// The text of the header program.cuh that kernels/region_leaf.cuh includes: the operations, with
// neither names nor rows, so that one kernel serves every R. Pure.
std::string LeafRegionText(const LeafRegion& region, RowSide rows = RowSide::kWhole);

}  // namespace cotune::cuda

#endif  // COTUNE_PLUGINS_CUDA_FUSED_LEAF_REGION_H_
