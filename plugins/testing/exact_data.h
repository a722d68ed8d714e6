// The data that collectives are tested with, and their right results by the reference evaluator.
#ifndef COTUNE_PLUGINS_TESTING_EXACT_DATA_H_
#define COTUNE_PLUGINS_TESTING_EXACT_DATA_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/problem/evaluated_value.h"
#include "plugins/sdk/problem.h"

namespace cotune::backend_test {

using sdk::Collective;
using sdk::ElementBytes;
using sdk::ElementType;
using sdk::Problem;
using sdk::Reduces;
using sdk::Reduction;

// Elements of the send and of the receive buffer of one rank.
uint64_t SendElements(const Problem& problem);
uint64_t ReceiveElements(const Problem& problem);

// The send buffer of one rank: small whole numbers, other ones for each rank and element, so that
// every order of summing gives the same bits in every type.
std::vector<std::byte> ExactInput(const Problem& problem, int rank);

// Returns what rank `rank` must receive when rank r sends inputs[r]: the only bytes that are right
// for ExactInput, also for averages, which this backend rounds once.
std::vector<std::byte> ExpectedOutput(const Problem& problem, int rank,
                                      const std::vector<std::vector<std::byte>>& inputs);
// For inputs whose sums round: the value that is exact but for the evaluator's own precision.
EvaluatedValue ExpectedSums(const Problem& problem, int rank,
                            const std::vector<std::vector<std::byte>>& inputs);

}  // namespace cotune::backend_test

#endif  // COTUNE_PLUGINS_TESTING_EXACT_DATA_H_
