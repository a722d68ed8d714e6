#include "plugins/fake/reduction.h"

#include <cstring>
#include <optional>

#include "core/base/check.h"
#include "core/problem/expected_collective.h"
#include "core/problem/problem.h"
#include "plugins/sdk/element_type.h"

namespace cotune::fake {
namespace {

// The words of core, which have the values of the ABI or the order of the SDK.
static_assert(static_cast<int>(Dtype::kU8) == static_cast<int>(sdk::ElementType::kU8) + 1);
static_assert(static_cast<uint32_t>(Reduction::kAverage) == COTUNE_AVERAGE);
Dtype DtypeOf(sdk::ElementType type) { return static_cast<Dtype>(static_cast<int>(type) + 1); }

}  // namespace

uint32_t ElementBytes(cotune_dtype_t dtype) {
  const std::optional<sdk::ElementType> type = sdk::ElementTypeFromAbi(dtype);
  return type ? static_cast<uint32_t>(sdk::ElementBytes(*type)) : 0;
}

void Reduce(cotune_dtype_t dtype, uint32_t reduction, uint64_t count,
            const std::vector<std::vector<std::byte>>& blocks, std::byte* to) {
  const std::optional<sdk::ElementType> type = sdk::ElementTypeFromAbi(dtype);
  COTUNE_CHECK(type.has_value(), "this backend has the type");
  Problem problem;
  problem.cls.collective = Collective::kAllReduce;
  problem.cls.dtype = DtypeOf(*type);
  problem.cls.reduction = static_cast<Reduction>(reduction);
  problem.cls.world_size = problem.cls.ranks_per_node = static_cast<int32_t>(blocks.size());
  problem.count = count;
  const auto reduced = ExpectedBytesOfBlocks(problem, blocks);
  COTUNE_CHECK(reduced.has_value(), "each rank sent a block of this reduction");
  if (count > 0) std::memcpy(to, reduced->data(), reduced->size());
}

}  // namespace cotune::fake
