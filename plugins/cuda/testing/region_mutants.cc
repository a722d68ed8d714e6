#include "plugins/cuda/testing/region_mutants.h"

#include <algorithm>
#include <cstddef>

#include "fmt/format.h"

namespace cotune::cuda {
namespace {

// The case `residual_norm` on 3 ranks.
RegionVariant VariantOf(int row_threads, int row_blocks, int threads) {
  const std::vector<RegionCase> cases = RegionCases();
  const auto found = std::find_if(cases.begin(), cases.end(), [](const RegionCase& each) {
    return each.name == "residual_norm";
  });
  return {static_cast<size_t>(found - cases.begin()),
          "one_shot_rows",
          3,
          1,
          row_threads,
          row_blocks,
          threads};
}

}  // namespace

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
       "of_threads[(row ^ 1u) * kRowThreads + w"},
      {"reduction without the other block", cluster, "of_blocks[b] = slots[b * kWarpLanes + lane];",
       "of_blocks[b] = b == static_cast<int>(blockIdx.x % kRowBlocks) ? value : T(0);"},
      {"reduction of the own block twice", cluster, "of_blocks[b] = slots[b * kWarpLanes + lane];",
       "of_blocks[b] = value;"},
      {"scale twice", cluster, "v4 * v9", "v4 * v9 * v9"},
      {"own operand instead of the sum", cluster,
       "        own[j][p] = ReduceInRankOrder(own[j][p], of_peers, a.rank);\n        SetPack",
       "        SetPack"},
      {"stream without the residual", cluster, ".SetBits(i, bits3)", ".SetBits(i, in0.Bits(i))"},
      {"output of another row", cluster, "a.operands[3], " + at,
       fmt::format("a.operands[3], (row + 1 < rows() ? row + 1 : 0) * {}ull + column", columns)},
  };
}

}  // namespace cotune::cuda
