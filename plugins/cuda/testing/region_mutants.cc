#include "plugins/cuda/testing/region_mutants.h"

#include <algorithm>
#include <cstddef>

#include "fmt/format.h"

namespace cotune::cuda {
namespace {

// A case on 3 ranks.
RegionVariant VariantOf(int row_threads, int row_blocks, int threads,
                        std::string_view name = "residual_norm",
                        std::string_view algorithm = "one_shot_rows") {
  const std::vector<RegionCase> cases = RegionCases();
  const auto found = std::find_if(cases.begin(), cases.end(),
                                  [&](const RegionCase& each) { return each.name == name; });
  return {static_cast<size_t>(found - cases.begin()),
          algorithm,
          3,
          1,
          row_threads,
          row_blocks,
          threads};
}

}  // namespace

std::vector<RegionMutant> SplitMutants() {
  const RegionVariant split = VariantOf(64, 1, 64, "split_residual_norm", "two_shot_split_rows");
  return {
      {"right, owners reduce rows", split, "", ""},
      {"carried value of the sum alone", split, "const Leaf<Bf16> leaf3 = SumOf(in0, in1);",
       "const Leaf<Bf16> leaf3 = in0;"},
      {"numbers for the first lane alone", split,
       "OfFirstLane<kRowLanes>(packs[kLeavesEnd].word[n])", "packs[kLeavesEnd].word[n]"},
      {"received value without the row's numbers", split,
       "    received.Store(of_owner.row, of_owner.is_there);",
       "    received.number[0] = 0; received.Store(of_owner.row, of_owner.is_there);"},
      {"rows of peers are not stored", split,
       "    received.Store(of_owner.row, of_owner.is_there);", ""},
  };
}

std::vector<RegionMutant> RegionMutants(uint32_t columns) {
  const std::string at = fmt::format("row * {}ull + column", columns);
  const RegionVariant rows = VariantOf(64, 1, 128);  // two rows of a block, two warps of a row
  const RegionVariant cluster = VariantOf(32, 2, 32);
  return {
      {"right, two rows of a block", rows, "", ""},
      {"right, cluster", cluster, "", ""},
      {"no residual", cluster, "const Leaf<Bf16> leaf3 = SumOf(in0, in1);",
       "const Leaf<Bf16> leaf3 = in0;"},
      {"residual of another row", cluster, "a.operands[1], " + at,
       fmt::format("a.operands[1], (row == 0 ? rows() - 1 : row - 1) * {}ull + column", columns)},
      {"gamma of the leaf before", cluster, "a.operands[2], column, count",
       fmt::format("a.operands[2], column == 0 ? {} : column - kLeafColumns, count", columns - 8)},
      {"gamma of the column beside", cluster, "in2.Get(i)", "in2.Get(i ^ 1)"},
      {"no eps", cluster, "v7 + 1e-06f", "v7"},
      {"reduction of another row", rows, "of_threads[row * kRowThreads + w",
       "of_threads[(row ^ 1u) * kRowThreads + w", FaultReach::kSome},
      {"reduction without the other block", cluster, "of_blocks[b] = slots[b * kWarpLanes + lane];",
       "of_blocks[b] = b == static_cast<int>(blockIdx.x % kRowBlocks) ? value : T(0);",
       FaultReach::kClusters},
      {"reduction of the own block twice", cluster, "of_blocks[b] = slots[b * kWarpLanes + lane];",
       "of_blocks[b] = value;", FaultReach::kClusters},
      {"scale twice", cluster, "v4 * v9", "v4 * v9 * v9"},
      {"own operand instead of the sum", cluster,
       "        own[j][p] = ReduceInRankOrder(own[j][p], of_peers, a.rank);\n        SetPack",
       "        SetPack"},
      {"stream without the residual", cluster, ".SetBits(i, bits3)", ".SetBits(i, in0.Bits(i))"},
      {"output of another row", cluster, "a.operands[3], " + at,
       fmt::format("a.operands[3], (row + 1 < rows() ? row + 1 : 0) * {}ull + column", columns)},
      // The stream overwrites the residual before the norm reads it here.
      {"residual read after it was overwritten", cluster,
       "const Leaf<Bf16> leaf3 = kHolds ? kept3[j] : SumOf(in0, in1);",
       "const Leaf<Bf16> leaf3 = SumOf(in0, LoadLeaf<Bf16, kIsAligned>(a.operands[1], " + at +
           ", count));"},
  };
}

std::vector<RegionMutant> FlaggedMutants() {
  RegionVariant flagged = VariantOf(0, 1, 0, "stream_into_residual", "two_shot_leaves");
  flagged.transport = "flagged";
  return {
      {"right, chunks with flags", flagged, "", ""},
      {"own leaves instead of the sum", flagged,
       "ReduceInRankOrder(PackOf(own[u], first + p), others[u][p], a_.rank)",
       "PackOf(own[u], first + p)"},
      {"operand of the leaf before", flagged,
       "leaves[n][u] = LeafOfSource(access, source_, work_.First(owner, c) + i, a_.count);",
       "leaves[n][u] = LeafOfSource(access, source_, work_.First(owner, c) + (i > 0 ? i - 1 : "
       "0), a_.count);"},
      {"residual of the leaf before", flagged,
       "operands[u] = LoadSink(access, sink_, work_.First(owner, c) + i, a_.count);",
       "operands[u] = LoadSink(access, sink_, work_.First(owner, c) + (i > 0 ? i - 1 : 0), "
       "a_.count);"},
      {"sums of the round before", flagged, "slots_.Out(a_.rank, owner, rounds_.Number(c + 1))",
       "slots_.Out(a_.rank, owner, rounds_.Number(c))"},
      {"own share is not stored", flagged,
       "      StoreSink(access, sink_, work_.First(a_.rank, c) + i, a_.count, operands[u], "
       "sums[u]);",
       ""},
      // The first store overwrites the residual, which the second one reads.
      {"residual read after it was overwritten", flagged,
       "StoreSink(access, sink_, work_.First(owner, c) + i, a_.count, operands[u], sums[n][u]);",
       "StoreSink(access, sink_, work_.First(owner, c) + i, a_.count, operands[u], sums[n][u]);\n"
       "StoreSink(access, sink_, work_.First(owner, c) + i, a_.count,\n"
       "          LoadSink(access, sink_, work_.First(owner, c) + i, a_.count), sums[n][u]);"},
  };
}

std::vector<RegionMutant> BatchedMutants() {
  RegionVariant batched = VariantOf(0, 1, 0, "stream_into_residual", "one_shot_batched_leaves");
  batched.unroll = 2;
  return {
      {"right, leaves at once", batched, "", ""},
      {"own leaves instead of the sum", batched,
       "packs[u][p] = ReduceInRankOrder(packs[u][p], of_peers, a.rank);", ""},
      {"leaf of the peer beside", batched, "of_peers[q] = others[u * kPacksOfLeaf +",
       "of_peers[q] = others[(COTUNE_UNROLL - 1 - u) * kPacksOfLeaf +"},
      {"last leaf is not stored", batched, "StoreSink(Access(), sink,",
       "if (u == 0) StoreSink(Access(), sink,"},
      {"residual of the leaf before", batched,
       "operands[u] = LoadSink(Access(), sink, leaves.base + leaves.At(u), a.count);",
       "operands[u] = LoadSink(Access(), sink, leaves.base + (leaves.At(u) > 0 ? leaves.At(u) - 1 "
       ": 0), a.count);"},
  };
}

std::vector<RegionMutant> AllMutants() {
  std::vector<RegionMutant> all = RegionMutants();
  for (const auto& more : {SplitMutants(), FlaggedMutants(), BatchedMutants()}) {
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace cotune::cuda
