// The right result of a single collective, which is a program of one node, by the reference
// evaluator. Pure.
#ifndef COTUNE_CORE_PROBLEM_EXPECTED_COLLECTIVE_H_
#define COTUNE_CORE_PROBLEM_EXPECTED_COLLECTIVE_H_

#include <cstddef>
#include <vector>

#include "core/base/status.h"
#include "core/problem/evaluated_value.h"
#include "core/problem/problem.h"

namespace cotune {

// Elements of the dtype, without gaps, that each rank sends.
using SentByRanks = std::vector<std::vector<std::byte>>;

// Returns what `rank` receives, with the bound of each element. `sent` holds every rank's send
// buffer, send_elements() long; for a broadcast only that of the root counts. kUsage: buffers of
// another number or size, or a class that Validate refuses.
Result<EvaluatedValue> ExpectedValue(const Problem& problem, int rank, const SentByRanks& sent);
// The same as bytes, recv_elements() long: the nearest to the exact result. Data that is only moved
// keeps every bit, whatever it is. Takes little memory beside the buffers.
Result<std::vector<std::byte>> ExpectedBytes(const Problem& problem, int rank,
                                             const SentByRanks& sent);

// The same from what each rank sends to the one that receives: `count` elements each, which of
// reduce_scatter and all_to_all are the receiver's block of each send buffer.
Result<EvaluatedValue> ExpectedValueOfBlocks(const Problem& problem, const SentByRanks& blocks);
Result<std::vector<std::byte>> ExpectedBytesOfBlocks(const Problem& problem,
                                                     const SentByRanks& blocks);

}  // namespace cotune

#endif  // COTUNE_CORE_PROBLEM_EXPECTED_COLLECTIVE_H_
