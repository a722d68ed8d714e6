// Evaluates one collective over all ranks; a part of the evaluator of programs.
#ifndef COTUNE_CORE_PROBLEM_EVALUATE_COLLECTIVE_H_
#define COTUNE_CORE_PROBLEM_EVALUATE_COLLECTIVE_H_

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/problem/evaluated_value.h"
#include "core/problem/program_graph.h"

namespace cotune {

// One value on each rank. Ranks whose values are the same share one; nullptr on ranks that nothing
// is computed for.
using RankValues = std::vector<std::shared_ptr<const EvaluatedValue>>;

// The ranks that a value is computed for: from `first` on, in front of `end`.
struct RankRange {
  size_t first = 0;
  size_t end = 0;
};

// `type` and `rows` are those of the result.
RankValues EvaluateCollective(const CollectiveNode& node, const ValueType& type, uint64_t rows,
                              const RankValues& operands, RankRange ranks);

// The reduction of the same element of each rank.
EvaluatedValue Reduce(Reduction reduction, const ValueType& type, uint64_t rows,
                      uint64_t first_element, const RankValues& operands);

}  // namespace cotune

#endif  // COTUNE_CORE_PROBLEM_EVALUATE_COLLECTIVE_H_
