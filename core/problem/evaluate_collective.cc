#include "core/problem/evaluate_collective.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace cotune {
namespace {

// Copies `count` elements from one value into another.
void CopyElements(const EvaluatedValue& from, uint64_t first, uint64_t count, EvaluatedValue& to,
                  uint64_t at) {
  const auto copy = [&](const auto& source, auto& target) {
    std::copy_n(source.begin() + static_cast<ptrdiff_t>(first), count,
                target.begin() + static_cast<ptrdiff_t>(at));
  };
  if (!from.floats.empty()) return copy(from.floats, to.floats);
  copy(from.integers, to.integers);
  if (from.integer_bounds.empty()) return;
  to.integer_bounds.resize(to.integers.size());
  copy(from.integer_bounds, to.integer_bounds);
}

EvaluatedValue Gathered(const ValueType& type, uint64_t rows, const RankValues& operands,
                        uint64_t first, uint64_t count) {
  EvaluatedValue result = Zeros(type, rows);
  for (size_t rank = 0; rank < operands.size(); ++rank) {
    CopyElements(*operands[rank], first, count, result, rank * count);
  }
  return result;
}

RankValues OnAllRanks(size_t ranks, EvaluatedValue value) {
  return RankValues(ranks, std::make_shared<const EvaluatedValue>(std::move(value)));
}

}  // namespace

RankValues EvaluateCollective(const CollectiveNode& node, const ValueType& type, uint64_t rows,
                              const RankValues& operands, RankRange ranks) {
  const uint64_t elements = operands[0]->elements();
  const uint64_t share = elements / operands.size();
  const auto on_each = [&](const auto& evaluate) {
    RankValues results(operands.size());
    for (size_t rank = ranks.first; rank < ranks.end; ++rank) {
      results[rank] = std::make_shared<const EvaluatedValue>(evaluate(rank * share));
    }
    return results;
  };
  switch (node.collective) {
    case Collective::kAllReduce:
      return OnAllRanks(operands.size(), Reduce(node.reduction, type, rows, 0, operands));
    case Collective::kBroadcast:
      return RankValues(operands.size(), operands[static_cast<size_t>(node.root)]);
    case Collective::kAllGather:
      return OnAllRanks(operands.size(), Gathered(type, rows, operands, 0, elements));
    case Collective::kReduceScatter:
      return on_each(
          [&](uint64_t first) { return Reduce(node.reduction, type, rows, first, operands); });
    case Collective::kAllToAll:
      return on_each([&](uint64_t first) { return Gathered(type, rows, operands, first, share); });
  }
  COTUNE_CHECK(false, "every collective is evaluated");
}

}  // namespace cotune
